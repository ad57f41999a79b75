// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(Schedule, IsTheConstantOneByDefault) {
  const Schedule schedule;
  EXPECT_OK(schedule.Validate());
  for (std::int64_t step : {0L, 1L, 1'000'000'000L}) EXPECT_EQ(schedule.FactorAt(step), 1);
}

TEST(Schedule, WarmUpMovesFromTheFirstStepAndReachesTheFullRateInItsLast) {
  const Schedule schedules[] = {
      ConstantSchedule{.warmup_steps = 4},
      LinearSchedule{.warmup_steps = 4, .total_steps = 10},
      CosineSchedule{.warmup_steps = 4, .total_steps = 10},
  };
  for (const Schedule& schedule : schedules) {
    EXPECT_OK(schedule.Validate());
    EXPECT_EQ(schedule.FactorAt(0), 0.25);
    EXPECT_EQ(schedule.FactorAt(2), 0.75);
    EXPECT_EQ(schedule.FactorAt(3), 1);
    EXPECT_EQ(schedule.FactorAt(4), 1);
  }
}

TEST(Schedule, LinearReachesItsFinalFactorInTheLastStepAndKeepsIt) {
  const Schedule schedule =
      LinearSchedule{.warmup_steps = 2, .total_steps = 12, .final_factor = 0.5};
  EXPECT_DOUBLE_EQ(schedule.FactorAt(7), 0.75);
  EXPECT_DOUBLE_EQ(schedule.FactorAt(11), 0.55);
  EXPECT_DOUBLE_EQ(schedule.FactorAt(12), 0.5);
  EXPECT_DOUBLE_EQ(schedule.FactorAt(1000), 0.5);
}

TEST(Schedule, CosineFollowsTheHalfWave) {
  const Schedule schedule = CosineSchedule{.total_steps = 100, .final_factor = 0.1};
  EXPECT_EQ(schedule.FactorAt(0), 1);
  EXPECT_NEAR(schedule.FactorAt(50), 0.55, 1e-15);
  EXPECT_NEAR(schedule.FactorAt(25), 0.1 + 0.9 * (1 + std::numbers::sqrt2 / 2) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(schedule.FactorAt(100), 0.1);
  EXPECT_DOUBLE_EQ(schedule.FactorAt(500), 0.1);
  for (std::int64_t step = 0; step < 100; ++step) {
    EXPECT_GT(schedule.FactorAt(step), schedule.FactorAt(step + 1));
  }
}

TEST(Schedule, TakesAFunctionOfTheUser) {
  const Schedule schedule = [](std::int64_t step) { return 1 / std::sqrt(step + 1.0); };
  EXPECT_OK(schedule.Validate());
  EXPECT_EQ(schedule.FactorAt(3), 0.5);
}

TEST(Schedule, ABadOptionIsAnErrorThatNamesItAndItsValue) {
  EXPECT_THAT(
      Schedule(ConstantSchedule{.warmup_steps = -3}).Validate(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("constant schedule: warmup_steps is -3")));
  EXPECT_THAT(
      Schedule(CosineSchedule{.warmup_steps = 10, .total_steps = 10}).Validate(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("cosine schedule: total_steps is 10")));
  EXPECT_THAT(Schedule(LinearSchedule{.total_steps = 10, .final_factor = -0.5}).Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("final_factor is -0.5")));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Schedule(LinearSchedule{.total_steps = 10, .final_factor = nan}).Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("final_factor is nan")));
}

}  // namespace
}  // namespace ait
