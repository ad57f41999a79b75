// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/lamb.h"

#include <gtest/gtest.h>

#include <cmath>

#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::LayoutOf;
using ::ait::testing::RandomFloats;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The formula in double, for one parameter.
struct Formula {
  LambOptions options;
  bool is_adapted = true;
  std::vector<double> p, m, v;
  int t = 0;

  explicit Formula(LambOptions o, std::vector<float> values)
      : options(std::move(o)), p(values.begin(), values.end()), m(p.size()), v(p.size()) {}

  void Step(const float* g, double rate) {
    ++t;
    std::vector<double> u(p.size());
    double of_p = 0, of_u = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g[i];
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(options.beta1, t));
      const double square = v[i] / (1 - std::pow(options.beta2, t));
      u[i] = mean / (std::sqrt(square) + options.epsilon) + options.weight_decay * p[i];
      of_p += p[i] * p[i];
      of_u += u[i] * u[i];
    }
    double trust = 1;
    if (is_adapted && of_p > 0 && of_u > 0) {
      trust = std::min(std::max(std::sqrt(of_p), options.least_norm), options.largest_norm) /
              std::sqrt(of_u);
      trust = std::min(trust, options.largest_trust);
    }
    for (std::size_t i = 0; i < p.size(); ++i) p[i] -= rate * trust * u[i];
  }
};

// Thirty steps of both; the parameters are LayoutOf's, of which those of odd numbers are vectors.
void ExpectFormula(const LambOptions& options, const std::vector<bool>& is_adapted) {
  const ParameterLayout layout = LayoutOf({1000, 65, 9001, 12});
  std::vector<float> parameters = RandomFloats(layout.owned[0].end, 1);
  std::vector<Formula> formulas;
  for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
    const ParameterSegment& segment = layout.parameters[i];
    formulas.emplace_back(options, std::vector<float>(parameters.begin() + segment.begin,
                                                      parameters.begin() + segment.range().end));
    formulas.back().is_adapted = is_adapted[i];
  }
  ASSERT_OK_AND_ASSIGN(const auto bound, Lamb(options).Bind(layout));
  for (int step = 0; step < 30; ++step) {
    std::vector<float> gradients = RandomFloats(layout.owned[0].end, 100 + step, 0.1f);
    const double factor = 1.0 / (1 + step % 4);
    for (std::size_t i = 0; i < formulas.size(); ++i) {
      formulas[i].Step(gradients.data() + layout.parameters[i].begin,
                       options.learning_rate * factor);
    }
    for (float& gradient : gradients) gradient *= 8;
    ASSERT_OK(bound->BeginStep({.learning_rate_factor = factor, .gradient_scale = 0.125}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  }
  for (std::size_t i = 0; i < formulas.size(); ++i) {
    const std::int64_t begin = layout.parameters[i].begin;
    for (std::size_t j = 0; j < formulas[i].p.size(); ++j) {
      ASSERT_NEAR(parameters[static_cast<std::size_t>(begin) + j], formulas[i].p[j],
                  2e-6 * std::max(1.0, std::abs(formulas[i].p[j])))
          << "parameter " << i << " element " << j;
    }
  }
}

TEST(Lamb, IsItsFormula) { ExpectFormula({.learning_rate = 0.01}, {true, true, true, true}); }

TEST(Lamb, LeavesVectorsUnadaptedIfAsked) {
  ExpectFormula({.learning_rate = 0.01, .least_dimensions_adapted = 2}, {true, false, true, false});
}

TEST(Lamb, LeavesWhatIsNamedUnadapted) {
  ExpectFormula({.learning_rate = 0.01, .not_adapted = {"p2", "?3"}}, {true, true, false, false});
}

TEST(Lamb, ClampsNormsAndTrust) {
  ExpectFormula({.learning_rate = 0.01, .least_norm = 5, .largest_norm = 40},
                {true, true, true, true});
  ExpectFormula({.learning_rate = 0.01, .largest_trust = 0.9}, {true, true, true, true});
}

TEST(Lamb, TrustIsOneForAParameterOfZeros) {
  const ParameterLayout layout = LayoutOf({8});
  std::vector<float> parameters(64, 0.0f), gradients(64, 0.5f);
  ASSERT_OK_AND_ASSIGN(const auto bound,
                       (Lamb{{.learning_rate = 0.25, .epsilon = 0}}.Bind(layout)));
  ASSERT_OK(bound->BeginStep({}));
  ASSERT_OK(
      bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  EXPECT_NEAR(parameters[0], -0.25, 1e-6);
}

TEST(Lamb, ABadOptionIsAnErrorThatNamesItAndItsValue) {
  EXPECT_THAT((Lamb{{.learning_rate = -1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("lamb: learning_rate is -1")));
  EXPECT_THAT((Lamb{{.beta1 = 1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("beta1 is 1")));
  EXPECT_THAT((Lamb{{.least_norm = 3, .largest_norm = 2}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("largest_norm is 2"), HasSubstr("least_norm, 3"))));
  EXPECT_THAT((Lamb{{.largest_trust = 0}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("largest_trust is 0")));
}

}  // namespace
}  // namespace ait
