// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/lion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::LayoutOf;
using ::ait::testing::RandomFloats;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

// The formulas of the header in double, from the fp32 numbers that a step began with.
struct InDouble {
  double rate, beta1, beta2, decay, scale;
  double Direction(float m, float g) const { return beta1 * m + (1 - beta1) * (g * scale); }
  double Parameter(float p, float m, float g) const {
    const double c = Direction(m, g);
    return p * (1 - rate * decay) - rate * ((c > 0) - (c < 0));
  }
  double Moment(float m, float g) const { return beta2 * m + (1 - beta2) * (g * scale); }
};

TEST(Lion, EachStepIsTheFormulaInDouble) {
  const ParameterLayout layout = LayoutOf({10'007});
  const LionOptions options = {.learning_rate = 1e-3, .beta2 = 0.98, .weight_decay = 0.3};
  ASSERT_OK_AND_ASSIGN(const auto bound, Lion{options}.Bind(layout));
  std::vector<float> parameters = RandomFloats(layout.owned[0].end, 1);
  for (int step = 0; step < 20; ++step) {
    std::vector<float> gradients = RandomFloats(layout.owned[0].end, 10 + step);
    const std::vector<float> p = parameters;
    const auto moments = bound->State()[0].floats();
    const std::vector<float> m(moments.begin(), moments.end());
    ASSERT_OK(bound->BeginStep({.learning_rate_factor = 0.5, .gradient_scale = 0.25}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
    const InDouble exact{0.5e-3, 0.9, 0.98, 0.3, 0.25};
    for (std::size_t i = 0; i < m.size(); ++i) {
      ASSERT_NEAR(moments[i], exact.Moment(m[i], gradients[i]), 1e-7) << i;
      if (std::abs(exact.Direction(m[i], gradients[i])) < 1e-6) continue;  // either sign is right
      ASSERT_NEAR(parameters[i], exact.Parameter(p[i], m[i], gradients[i]),
                  2e-7 * std::abs(p[i]) + 1e-10)
          << i;
    }
  }
}

TEST(Lion, WithoutGradientNothingButTheDecayMoves) {
  ASSERT_OK_AND_ASSIGN(const auto bound, (Lion{{.weight_decay = 0.5}}.Bind(LayoutOf({100}))));
  std::vector<float> parameters = RandomFloats(100, 1);
  const std::vector<float> before = parameters;
  std::vector<float> gradients(100);
  ASSERT_OK(bound->BeginStep({}));
  ASSERT_OK(bound->Update({.parameters = View(parameters), .gradients = View(gradients)}));
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(parameters[i], before[i] * static_cast<float>(1 - 1e-4 * 0.5));
  }
}

TEST(Lion, ABadOptionIsAnErrorThatNamesOptimizerOptionAndValue) {
  EXPECT_THAT((Lion{{.learning_rate = -1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("lion: learning_rate is -1")));
  EXPECT_THAT((Lion{{.beta2 = 1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("lion: beta2 is 1")));
}

TEST(Lion, DescribesAllOptions) {
  EXPECT_NE(Lion().Describe(), Lion{{.beta1 = 0.8}}.Describe());
  EXPECT_NE(Lion().Describe(), Lion{{.state = StateFormat::kBlockwise8bit}}.Describe());
  EXPECT_EQ(Lion().name(), "lion");
}

}  // namespace
}  // namespace ait
