// SPDX-License-Identifier: Apache-2.0
// The torch rule is held to torch's own numbers by torch_reference_test.cc.
#include "ait/optim/adafactor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::RandomFloats;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

ParameterLayout OneOf(std::vector<std::int64_t> shape) {
  ParameterLayout layout;
  layout.parameters.push_back({.name = "w", .begin = 0, .shape = std::move(shape)});
  layout.owned = {{0, RoundUp(layout.parameters[0].size(), 64)}};
  return layout;
}

// Both rules in double, for one parameter whose factored dimensions are `row` and `column`, or none
// (-1), by plain indexing.
struct Formula {
  AdafactorOptions o;
  std::vector<std::int64_t> shape;
  int row = -1, column = -1;
  std::vector<double> p, m, row_var, col_var, variance;
  int t = 0;

  Formula(AdafactorOptions options, std::vector<std::int64_t> sizes, int r, int c,
          const std::vector<float>& values)
      : o(options), shape(std::move(sizes)), row(r), column(c), p(values.begin(), values.end()) {
    m.resize(p.size());
    row_var.resize(p.size());
    col_var.resize(p.size());
    variance.resize(p.size());
  }

  // The element number with the index of dimension d set to 0: the place of its mean over d.
  std::size_t Without(std::size_t i, int d) const {
    std::size_t stride = 1;
    for (std::size_t k = shape.size(); k-- > static_cast<std::size_t>(d) + 1;)
      stride *= static_cast<std::size_t>(shape[k]);
    const std::size_t size = static_cast<std::size_t>(shape[static_cast<std::size_t>(d)]);
    return i - i / stride % size * stride;
  }

  void Step(const std::vector<float>& g, double rate) {
    ++t;
    const bool is_torch = o.rule == AdafactorRule::kTorch;
    const double eps = o.epsilon1.value_or(is_torch ? std::ldexp(1, -23) : 1e-30);
    const double weight = std::pow(t, o.beta2_decay);
    const auto n = static_cast<double>(p.size());
    std::vector<double> u(p.size());
    if (row < 0) {
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double square = double{g[i]} * g[i] + (is_torch ? 0 : eps);
        variance[i] += weight * (square - variance[i]);
        u[i] = g[i] / std::sqrt(is_torch ? std::max(variance[i], eps * eps) : variance[i]);
      }
    } else {
      std::vector<double> rows(p.size()), columns(p.size()), means(p.size());
      const auto row_size = static_cast<double>(shape[static_cast<std::size_t>(row)]);
      const auto column_size = static_cast<double>(shape[static_cast<std::size_t>(column)]);
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double square = double{g[i]} * g[i] + (is_torch ? 0 : eps);
        rows[Without(i, column)] += square / column_size;
        columns[Without(i, row)] += square / row_size;
      }
      for (std::size_t i = 0; i < p.size(); ++i) {
        if (Without(i, column) == i) row_var[i] += weight * (rows[i] - row_var[i]);
        if (Without(i, row) == i) col_var[i] += weight * (columns[i] - col_var[i]);
      }
      for (std::size_t i = 0; i < p.size(); ++i) {
        if (Without(i, column) == i) means[Without(i, row)] += row_var[i] / row_size;
      }
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double mean = means[Without(Without(i, column), row)];
        const double v = row_var[Without(i, column)] * col_var[Without(i, row)] /
                         (is_torch ? std::max(mean, eps) : mean);
        u[i] = g[i] / std::sqrt(is_torch ? std::max(v, eps * eps) : v);
      }
    }
    double of_p = 0, of_u = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      of_p += p[i] * p[i] / n;
      of_u += u[i] * u[i] / n;
    }
    const double size = std::max(o.epsilon2, std::sqrt(of_p));
    double alpha = is_torch ? size * std::min(rate, 1 / std::sqrt(t)) : size * rate;
    if (o.step == StepSize::kAbsolute) alpha = rate;
    const double clip = std::max(1.0, std::sqrt(of_u) / o.clipping_threshold);
    for (std::size_t i = 0; i < p.size(); ++i) {
      double step = alpha * u[i] / clip;
      if (o.beta1 > 0) step = m[i] = o.beta1 * m[i] + (1 - o.beta1) * step;
      p[i] = p[i] * (1 - rate * o.weight_decay) - step;
    }
  }
};

void ExpectFormula(const AdafactorOptions& options, const std::vector<std::int64_t>& shape, int row,
                   int column) {
  const ParameterLayout layout = OneOf(shape);
  const std::int64_t count = layout.parameters[0].size();
  std::vector<float> parameters = RandomFloats(count, 1);
  Formula formula(options, shape, row, column, parameters);
  ASSERT_OK_AND_ASSIGN(const auto bound, Adafactor(options).Bind(layout));
  for (int step = 0; step < 8; ++step) {
    std::vector<float> gradients = RandomFloats(count, 100 + step, 0.1f);
    const double factor = 1.0 / (1 + step % 3);
    formula.Step(gradients, options.learning_rate * factor);
    for (float& gradient : gradients) gradient *= 8;
    ASSERT_OK(bound->BeginStep({.learning_rate_factor = factor, .gradient_scale = 0.125}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_NEAR(parameters[i], formula.p[i], 2e-6 * std::max(1.0, std::abs(formula.p[i])))
        << "element " << i;
  }
}

AdafactorOptions T5x() {
  return {.rule = AdafactorRule::kT5x, .learning_rate = 0.03, .least_factored = 4};
}

TEST(Adafactor, TheT5xRuleIsItsFormula) {
  ExpectFormula(T5x(), {40, 30}, 0, 1);
  ExpectFormula(T5x(), {30, 40}, 0, 1);
  ExpectFormula(T5x(), {300}, -1, -1);
  ExpectFormula(T5x(), {}, -1, -1);
}

TEST(Adafactor, T5xFactorsTheTwoLargestDimensionsWhereverTheyAre) {
  ExpectFormula(T5x(), {20, 30, 3, 2}, 0, 1);
  ExpectFormula(T5x(), {2, 20, 3, 30, 2}, 1, 3);
  ExpectFormula(T5x(), {3, 20, 20}, 1, 2);
  ExpectFormula(T5x(), {20, 20, 20}, 1, 2);  // the later of equals
}

TEST(Adafactor, T5xFactorsNothingSmall) {
  ExpectFormula(T5x(), {40, 3}, -1, -1);
  ExpectFormula({.rule = AdafactorRule::kT5x, .learning_rate = 0.03}, {127, 200}, -1, -1);
  ExpectFormula({.rule = AdafactorRule::kT5x, .learning_rate = 0.03}, {128, 200}, 0, 1);
}

TEST(Adafactor, T5xHasMomentumDecayAndAbsoluteSteps) {
  AdafactorOptions options = T5x();
  options.beta1 = 0.9;
  options.weight_decay = 0.1;
  options.clipping_threshold = 0.5;
  ExpectFormula(options, {40, 30}, 0, 1);
  ExpectFormula(options, {20, 30, 3, 2}, 0, 1);
  ExpectFormula(options, {300}, -1, -1);
  options.step = StepSize::kAbsolute;
  ExpectFormula(options, {40, 30}, 0, 1);
}

TEST(Adafactor, TheTorchRuleIsItsFormula) {
  ExpectFormula({}, {40, 30}, 0, 1);
  ExpectFormula({}, {3, 4, 5, 6}, 2, 3);
  ExpectFormula({}, {1, 50}, 0, 1);
  ExpectFormula({}, {300}, -1, -1);
  ExpectFormula({.learning_rate = 0.5, .weight_decay = 0.1}, {100, 90}, 0, 1);
}

TEST(Adafactor, LargeMatricesAreSummedInPiecesWhateverTheThreads) {
  ExpectFormula({}, {300, 400}, 0, 1);
  ExpectFormula(T5x(), {5, 300, 2, 200, 2}, 1, 3);
  const ParameterLayout layout = OneOf({2, 300, 400});
  std::vector<float> serial = RandomFloats(240'000, 1), parallel = serial;
  std::vector<float> gradients = RandomFloats(240'000, 2);
  for (const auto& [parameters, threads] : {std::pair(&serial, 1), std::pair(&parallel, 3)}) {
    ASSERT_OK_AND_ASSIGN(const auto bound,
                         Adafactor().Bind(layout, {.executor = testing::ThreadsOf(threads)}));
    ASSERT_OK(bound->BeginStep({}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(*parameters), .gradients = View(gradients)}));
  }
  EXPECT_TRUE(testing::SameBits(serial, parallel));
}

TEST(Adafactor, KeepsRowsAndColumnsOfAMatrix) {
  ParameterLayout layout = OneOf({300, 500});
  ASSERT_OK_AND_ASSIGN(const auto bound, Adafactor().Bind(layout));
  EXPECT_LE(bound->state_bytes(), 4 * (300 + 500 + 32));
  const auto state = bound->State();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].state, "row_var");
  EXPECT_THAT(state[0].shape, ::testing::ElementsAre(300, 1));
  EXPECT_EQ(state[0].floats().size(), 300u);
  EXPECT_EQ(state[1].state, "col_var");
  EXPECT_THAT(state[1].shape, ::testing::ElementsAre(1, 500));
}

TEST(Adafactor, AZeroGradientMovesNothing) {
  for (const auto& options : {AdafactorOptions{}, T5x()}) {
    ParameterLayout layout = OneOf({30, 20});
    std::vector<float> parameters = RandomFloats(600, 1);
    const std::vector<float> before = parameters;
    std::vector<float> gradients(600, 0.0f);
    ASSERT_OK_AND_ASSIGN(const auto bound, Adafactor(options).Bind(layout));
    ASSERT_OK(bound->BeginStep({}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
    EXPECT_EQ(parameters, before);
  }
}

TEST(Adafactor, ABadOptionIsAnErrorThatNamesItAndItsValue) {
  EXPECT_THAT((Adafactor{{.learning_rate = -1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("adafactor: learning_rate is -1")));
  EXPECT_THAT((Adafactor{{.beta2_decay = 0.8}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-beta2_decay is -0.8")));
  EXPECT_THAT((Adafactor{{.clipping_threshold = 0.5}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("clipping_threshold is 0.5")));
  EXPECT_THAT(
      (Adafactor{{.beta1 = 0.9}}.Bind({})),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("beta1 is 0.9"), HasSubstr("kT5x"))));
}

}  // namespace
}  // namespace ait
