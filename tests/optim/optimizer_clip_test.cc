// SPDX-License-Identifier: Apache-2.0
// Scales by group and clipping by value, in the pass of the update.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "ait/base/float16.h"
#include "ait/optim/adam.h"
#include "ait/optim/sgd.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::LayoutOf;
using ::ait::testing::RandomFloats;
using ::ait::testing::SameBits;
using ::ait::testing::StatusIs;
using ::ait::testing::ThreadsOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kScale = 0.37;

const ParameterGroups kGroups = {{.name = "first", .pattern = "p0"},
                                 {.name = "vectors", .max_dimensions = 1, .weight_decay = 0.0}};
// p0 is in the first group, p1 and p3 in the second, p2 and p4 in none.
constexpr int kGroupOf[] = {0, 1, 2, 1, 2};

struct Case {
  const Optimizer& optimizer;
  int threads = 1;
};

/// The parameters after three steps, with gradients as `prepare` makes them, if it is given.
std::vector<float> Train(const Case& c, const StepOptions& step,
                         const std::function<float(int parameter, float gradient)>& prepare) {
  const ParameterLayout layout = LayoutOf({100, 7, 64, 1, 20'000});
  auto bound = c.optimizer.Bind(layout, {.executor = ThreadsOf(c.threads)}).value();
  std::vector<float> parameters = RandomFloats(layout.owned[0].size(), 1);
  for (unsigned s = 0; s < 3; ++s) {
    std::vector<float> gradients = RandomFloats(layout.owned[0].size(), 2 + s);
    for (std::size_t p = 0; p < layout.parameters.size(); ++p) {
      const ElementRange range = layout.parameters[p].range();
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        float& gradient = gradients[static_cast<std::size_t>(i)];
        if (prepare) gradient = prepare(static_cast<int>(p), gradient);
      }
    }
    EXPECT_OK(bound->BeginStep(step));
    EXPECT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
    if (step.gradients_after == GradientsAfter::kZero) {
      for (std::size_t p = 0; p < layout.parameters.size(); ++p) {
        EXPECT_EQ(gradients[static_cast<std::size_t>(layout.parameters[p].begin)], 0);
      }
    }
  }
  return parameters;
}

class OptimizerClip : public ::testing::Test {
 protected:
  const AdamW adamw_{{.learning_rate = 0.01, .weight_decay = 0.1}, kGroups};
  const Sgd sgd_{{.learning_rate = 0.1, .momentum = 0.9}, kGroups};
  const std::vector<Case> cases_ = {{adamw_}, {adamw_, 3}, {sgd_}, {sgd_, 2}};
};

TEST_F(OptimizerClip, GroupScalesMultiplyTheGradientsOfTheirGroup) {
  const std::vector<double> scales = {0.5, 0.031, 1.75};
  for (const Case& c : cases_) {
    const auto expected = Train(c, {}, [&](int p, float gradient) {
      return gradient * static_cast<float>(kScale * scales[static_cast<std::size_t>(kGroupOf[p])]);
    });
    for (const GradientsAfter after : {GradientsAfter::kKept, GradientsAfter::kZero}) {
      EXPECT_TRUE(SameBits(
          Train(c, {.gradient_scale = kScale, .gradients_after = after, .group_scales = scales},
                nullptr),
          expected));
    }
    EXPECT_FALSE(SameBits(Train(c, {.gradient_scale = kScale}, nullptr), expected));
  }
}

TEST_F(OptimizerClip, ScalesOfOneAndAValueThatCutsNothingChangeNoBit) {
  for (const Case& c : cases_) {
    const auto plain = Train(c, {.gradient_scale = kScale}, nullptr);
    EXPECT_TRUE(SameBits(
        Train(c, {.gradient_scale = kScale, .group_scales = {1, 1, 1}, .clip_value = 1e6}, nullptr),
        plain));
  }
}

TEST_F(OptimizerClip, ValuesAreCutAfterAllScales) {
  const std::vector<double> scales = {2, 1, 0.25};
  for (const Case& c : cases_) {
    const auto expected = Train(c, {}, [&](int p, float gradient) {
      const auto scale = static_cast<float>(kScale * scales[static_cast<std::size_t>(kGroupOf[p])]);
      return std::clamp(gradient * scale, -0.1f, 0.1f);
    });
    EXPECT_TRUE(SameBits(
        Train(c, {.gradient_scale = kScale, .group_scales = scales, .clip_value = 0.1f}, nullptr),
        expected));
  }
}

TEST_F(OptimizerClip, HoldsForBf16WithMastersAndCopies) {
  const ParameterLayout layout = LayoutOf({100, 7, 5000});
  const std::size_t n = static_cast<std::size_t>(layout.owned[0].size());
  const auto train = [&](const StepOptions& step, bool prepared) {
    auto bound = adamw_.Bind(layout, {.parameter_dtype = DType::kBFloat16}).value();
    std::vector<BFloat16> parameters(n), copy(n);
    void* const copies[] = {copy.data()};
    const Buffer buffer{parameters.data(), static_cast<std::int64_t>(n), DType::kBFloat16};
    EXPECT_OK(bound->SetParameters({.begin = 0, .parameters = buffer},
                                   RandomFloats(static_cast<std::int64_t>(n), 1)));
    for (unsigned s = 0; s < 3; ++s) {
      auto gradients = RandomFloats(static_cast<std::int64_t>(n), 2 + s);
      for (float& g : gradients) {
        if (prepared) g = std::clamp(g * static_cast<float>(kScale), -0.1f, 0.1f);
      }
      EXPECT_OK(bound->BeginStep(step));
      EXPECT_OK(bound->Update(
          {.begin = 0, .parameters = buffer, .gradients = View(gradients), .copies = copies}));
    }
    std::vector<float> values(n);
    EXPECT_OK(bound->GetParameters({.begin = 0, .parameters = buffer}, values));
    EXPECT_EQ(std::memcmp(copy.data(), parameters.data(), 100 * sizeof(BFloat16)), 0);
    return values;
  };
  EXPECT_TRUE(
      SameBits(train({.gradient_scale = kScale, .clip_value = 0.1f}, false), train({}, true)));
}

TEST_F(OptimizerClip, ABadNumberIsAnErrorAndBeginsNoStep) {
  auto bound = adamw_.Bind(LayoutOf({100})).value();
  EXPECT_THAT(bound->BeginStep({.group_scales = {1, 2}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("there are 2 group_scales; give 3"), HasSubstr("step 1"))));
  EXPECT_THAT(bound->BeginStep({.group_scales = {1, 2, kInfinity}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("group_scales[2], of parameters in no group, is inf")));
  EXPECT_THAT(bound->BeginStep({.gradient_scale = 1e30, .group_scales = {1, 2, 1e30}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("group_scales[2], of parameters in no group, is 1e+30")));
  EXPECT_THAT(
      bound->BeginStep({.group_scales = {1, std::nan(""), 1}}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("group_scales[1], of parameter group \"")));
  EXPECT_THAT(bound->BeginStep({.clip_value = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("clip_value is 0; it must be")));
  EXPECT_THAT(bound->BeginStep({.clip_value = std::nan("")}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("clip_value is nan")));
  EXPECT_EQ(bound->step(), 0);
}

}  // namespace
}  // namespace ait
