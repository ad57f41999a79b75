// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "optim/matrix_product.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::kAllSimdLevels;
using ::ait::testing::RandomFloats;
using ::ait::testing::SameBits;
using ::ait::testing::StatusIs;
using ::ait::testing::ThreadsOf;
using ::testing::HasSubstr;

using Numbers = std::vector<double>;

Numbers Product(const Numbers& a, const Numbers& b, std::int64_t rows, std::int64_t k,
                std::int64_t columns) {
  Numbers out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t j = 0; j < columns; ++j) {
        out[static_cast<std::size_t>(i * columns + j)] +=
            a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(l * columns + j)];
      }
    }
  }
  return out;
}

Numbers Transposed(const Numbers& a, std::int64_t rows, std::int64_t columns) {
  Numbers out(a.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j)
      out[static_cast<std::size_t>(j * rows + i)] = a[static_cast<std::size_t>(i * columns + j)];
  }
  return out;
}

// The formula in double.
struct Formula {
  MuonOptions o;
  std::int64_t rows, columns;
  Numbers p, buffer;

  Formula(MuonOptions options, std::int64_t r, std::int64_t c, const float* values)
      : o(std::move(options)), rows(r), columns(c), p(values, values + r * c), buffer(p.size()) {}

  Numbers Orthogonal(Numbers x) const {
    const bool turned = rows > columns;
    const std::int64_t low = std::min(rows, columns), high = std::max(rows, columns);
    if (turned) x = Transposed(x, rows, columns);
    double norm = 0;
    for (const double value : x) norm += value * value;
    for (double& value : x) value /= std::max(std::sqrt(norm), o.epsilon);
    for (int step = 0; step < o.steps; ++step) {
      const Numbers a = Product(x, Transposed(x, low, high), low, high, low);
      Numbers b = Product(a, a, low, low, low);
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * b[i];
      const Numbers bx = Product(b, x, low, low, high);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + bx[i];
    }
    return turned ? Transposed(x, low, high) : x;
  }

  void Step(const float* g, double rate) {
    Numbers u(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      buffer[i] = o.momentum * buffer[i] + (1 - o.momentum) * g[i];
      u[i] = o.momentum_form == Momentum::kNesterov
                 ? o.momentum * buffer[i] + (1 - o.momentum) * g[i]
                 : buffer[i];
    }
    u = Orthogonal(u);
    const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
    const double adjustment = o.adjustment == Adjustment::kOriginal
                                  ? std::sqrt(std::max(1.0, ratio))
                                  : 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
    for (std::size_t i = 0; i < p.size(); ++i)
      p[i] = p[i] * (1 - rate * o.weight_decay) - rate * adjustment * u[i];
  }
};

void ExpectFormula(const MuonOptions& options, const std::vector<std::int64_t>& shape) {
  ParameterLayout layout;
  layout.parameters.push_back({.name = "w", .begin = 0, .shape = shape});
  const std::int64_t count = layout.parameters[0].size();
  layout.owned = {{0, count}};
  std::vector<float> parameters = RandomFloats(count, 1);
  Formula formula(options, shape[0], count / shape[0], parameters.data());
  ASSERT_OK_AND_ASSIGN(const auto bound, Muon(options).Bind(layout));
  for (int step = 0; step < 5; ++step) {
    std::vector<float> gradients = RandomFloats(count, 100 + step, 0.1f);
    const double factor = 1.0 / (1 + step % 3);
    formula.Step(gradients.data(), options.learning_rate * factor);
    for (float& gradient : gradients) gradient *= 8;
    ASSERT_OK(bound->BeginStep({.learning_rate_factor = factor, .gradient_scale = 0.125}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  }
  // The iteration multiplies small singular values by up to 3.4445 a step, and their errors too.
  for (std::size_t i = 0; i < parameters.size(); ++i)
    ASSERT_NEAR(parameters[i], formula.p[i], 2e-5) << "element " << i;
}

TEST(Muon, IsItsFormulaForMatricesOfAnyProportion) {
  for (const auto& [rows, columns] :
       {std::pair(40, 40), std::pair(24, 70), std::pair(70, 24), std::pair(1, 9), std::pair(9, 1),
        std::pair(1, 1), std::pair(33, 97), std::pair(128, 64)}) {
    SCOPED_TRACE(StrCat(rows, " x ", columns));
    ExpectFormula({.learning_rate = 0.02}, {rows, columns});
  }
}

TEST(Muon, IsItsFormulaWithEveryOption) {
  ExpectFormula({.learning_rate = 0.02, .momentum = 0.8, .momentum_form = Momentum::kClassical},
                {30, 50});
  ExpectFormula({.learning_rate = 0.02, .weight_decay = 0.5, .adjustment = Adjustment::kMatchAdamW},
                {50, 30});
  ExpectFormula({.learning_rate = 0.02, .steps = 3}, {30, 50});
  ExpectFormula({.learning_rate = 0.02, .higher_dimensions = HigherDimensions::kFlattened},
                {12, 5, 3, 3});
}

TEST(Muon, MakesTheUpdateNearlyOrthogonal) {
  ParameterLayout layout;
  layout.parameters.push_back({.name = "w", .begin = 0, .shape = {20, 30}});
  layout.owned = {{0, 600}};
  std::vector<float> parameters(600, 0.0f), gradients = RandomFloats(600, 3);
  ASSERT_OK_AND_ASSIGN(const auto bound, (Muon{{.learning_rate = 1}}.Bind(layout)));
  ASSERT_OK(bound->BeginStep({}));
  ASSERT_OK(
      bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  const Numbers update(parameters.begin(), parameters.end());
  const Numbers gram = Product(update, Transposed(update, 20, 30), 20, 30, 20);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(gram[i * 20 + i], 1, 0.6) << i;
}

TEST(Muon, GivesTheRestToAdamW) {
  ParameterLayout layout;
  layout.parameters = {{.name = "wte", .begin = 0, .shape = {8, 8}},
                       {.name = "bias", .begin = 64, .shape = {50}},
                       {.name = "w", .begin = 128, .shape = {8, 8}},
                       {.name = "conv", .begin = 192, .shape = {2, 2, 4, 4}},
                       {.name = "scale", .begin = 256, .shape = {}}};
  layout.owned = {{0, 320}};
  const AdamWOptions adamw{.learning_rate = 0.5, .weight_decay = 0.1};
  const ParameterGroups groups = {NoDecayForNormsAndBiases()};
  const Muon muon{{.adamw_parameters = {"wte*"}, .adamw = adamw}, groups};
  ASSERT_OK_AND_ASSIGN(const auto ours, muon.Bind(layout));
  ASSERT_OK_AND_ASSIGN(const auto theirs, AdamW(adamw, groups).Bind(layout));
  std::vector<float> a = RandomFloats(320, 1), b = a;
  for (unsigned step = 0; step < 3; ++step) {
    std::vector<float> gradients = RandomFloats(320, 10 + step);
    ASSERT_OK(ours->BeginStep({}));
    ASSERT_OK(theirs->BeginStep({}));
    ASSERT_OK(ours->Update({.begin = 0, .parameters = View(a), .gradients = View(gradients)}));
    ASSERT_OK(theirs->Update({.begin = 0, .parameters = View(b), .gradients = View(gradients)}));
  }
  EXPECT_TRUE(SameBits(std::span(a).first(128), std::span(b).first(128)));
  EXPECT_FALSE(SameBits(std::span(a).subspan(128, 64), std::span(b).subspan(128, 64)));
  EXPECT_TRUE(SameBits(std::span(a).subspan(192), std::span(b).subspan(192)));

  std::map<std::string, std::vector<std::string>> state;
  for (const StateSlice& slice : ours->State())
    state[std::string(slice.parameter)].emplace_back(slice.state);
  EXPECT_THAT(state["w"], ::testing::ElementsAre("momentum_buffer"));
  EXPECT_THAT(state["conv"], ::testing::ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_EQ(state.size(), 5u);
  EXPECT_THAT(muon.state_names(),
              ::testing::ElementsAre("momentum_buffer", "exp_avg", "exp_avg_sq"));
}

TEST(Muon, GroupsGiveMatricesOtherRates) {
  ParameterLayout layout;
  layout.parameters = {{.name = "slow", .begin = 0, .shape = {8, 8}},
                       {.name = "fast", .begin = 64, .shape = {8, 8}}};
  layout.owned = {{0, 128}};
  ASSERT_OK_AND_ASSIGN(const auto bound,
                       (Muon{{.learning_rate = 1, .weight_decay = 0},
                             {{.name = "slow", .pattern = "slow", .learning_rate = 0.25}}}
                            .Bind(layout)));
  std::vector<float> parameters(128, 0.0f), gradients = RandomFloats(64, 1);
  gradients.insert(gradients.end(), gradients.begin(), gradients.begin() + 64);
  ASSERT_OK(bound->BeginStep({}));
  ASSERT_OK(
      bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(4 * parameters[i], parameters[i + 64]);
}

TEST(Muon, ABadOptionIsAnErrorThatNamesItAndItsValue) {
  EXPECT_THAT((Muon{{.learning_rate = -1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("muon: learning_rate is -1")));
  EXPECT_THAT((Muon{{.momentum = 1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("momentum is 1")));
  EXPECT_THAT((Muon{{.steps = 0}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("steps is 0")));
  EXPECT_THAT((Muon{{.adamw = {.beta1 = 2}}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("adamw: beta1 is 2")));
}

TEST(MatrixProduct, EveryLevelAndThreadCountSumsInTheSameOrder) {
  const Executor alone, three = ThreadsOf(3);
  for (const auto& [rows, k, columns] : {std::tuple(1, 1, 1), std::tuple(5, 7, 33),
                                         std::tuple(64, 65, 66), std::tuple(130, 40, 37)}) {
    const auto n = static_cast<std::size_t>(rows * columns);
    const std::vector<float> left = RandomFloats(rows * k, 1), right = RandomFloats(k * columns, 2);
    std::vector<float> expected(n);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        float sum = 0;
        for (int l = 0; l < k; ++l)
          sum = std::fma(left[static_cast<std::size_t>(i * k + l)],
                         right[static_cast<std::size_t>(l * columns + j)], sum);
        expected[static_cast<std::size_t>(i * columns + j)] = sum;
      }
    }
    std::vector<float> scratch(internal::MatrixProduct::ScratchFloats(rows, k, columns));
    for (const SimdLevel level : kAllSimdLevels) {
      for (const Executor* executor : {&alone, &three}) {
        std::vector<float> out(n, NAN);
        internal::MatrixProduct(internal::WholeKernelsFor(level), *executor)
            .Multiply(left.data(), right.data(), rows, k, columns, 1, 0, internal::Symmetry::kNone,
                      out.data(), scratch.data());
        EXPECT_TRUE(SameBits(out, expected)) << Name(level) << " " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace ait
