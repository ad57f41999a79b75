// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "optim/reference_data.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ReadReferenceLines;
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
      PolynomialSchedule{.warmup_steps = 4, .total_steps = 10, .power = 2},
      ExponentialSchedule{.warmup_steps = 4, .decay = 0.5},
      StepSchedule{.warmup_steps = 4, .every = 2},
      MultiStepSchedule{.warmup_steps = 4, .milestones = {6}},
      WarmupStableDecaySchedule{.warmup_steps = 4, .total_steps = 10, .decay_steps = 3},
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

TEST(Schedule, GivesWhatTheSchedulersOfTorchGive) {
  const auto torch = ReadReferenceLines(AIT_TEST_REFERENCE "/schedules.txt");
  ASSERT_FALSE(torch.empty());
  const ExponentialSchedule exponential{.decay = 0.9};
  const std::pair<const char*, Schedule> cases[] = {
      {"polynomial", PolynomialSchedule{.total_steps = 10, .power = 2}},
      {"exponential", exponential},
      {"step", StepSchedule{.every = 3, .decay = 0.5}},
      {"multi_step", MultiStepSchedule{.milestones = {2, 5, 6, 11}, .decay = 0.3}},
      {"one_cycle", OneCycleSchedule{.total_steps = 20}},
      {"one_cycle_linear", OneCycleSchedule{.total_steps = 17,
                                            .rise = 0.4,
                                            .initial_divisor = 10,
                                            .final_divisor = 100,
                                            .shape = DecayShape::kLinear}},
      {"one_cycle_three", OneCycleSchedule{.total_steps = 23, .phases = OneCyclePhases::kThree}},
      {"one_cycle_fall", OneCycleSchedule{.total_steps = 9, .rise = 0}},
      {"chained", ChainedSchedule{{exponential, StepSchedule{.every = 4, .decay = 0.5}}}},
      {"sequential",
       SequentialSchedule{{exponential, PolynomialSchedule{.total_steps = 8, .power = 2},
                           StepSchedule{.every = 2, .decay = 0.5}},
                          {5, 9}}},
  };
  for (const auto& [name, schedule] : cases) {
    EXPECT_OK(schedule.Validate());
    const std::vector<double>& expected = torch.at(name);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(schedule.FactorAt(static_cast<std::int64_t>(step)), expected[step], 1e-14)
          << name << " at step " << step;
    }
  }
}

TEST(Schedule, HoldsItsLastFactor) {
  const OneCycleSchedule cycle{.total_steps = 20};
  EXPECT_NEAR(cycle(19), 1 / 25.0 / 1e4, 1e-18);
  EXPECT_EQ(cycle(20), cycle(19));
  EXPECT_EQ(cycle(1'000'000), cycle(19));
  const PolynomialSchedule polynomial{.total_steps = 7, .power = 3, .final_factor = 0.25};
  EXPECT_EQ(polynomial(7), 0.25);
  EXPECT_EQ(polynomial(70), 0.25);
}

TEST(Schedule, OneCycleReachesTheTopAndTurnsInEveryShortRun) {
  for (std::int64_t total = 2; total < 12; ++total) {
    for (const OneCyclePhases phases : {OneCyclePhases::kTwo, OneCyclePhases::kThree}) {
      for (const double rise : {0.0, 0.1, 0.5}) {
        const Schedule cycle =
            OneCycleSchedule{.total_steps = total, .rise = rise, .phases = phases};
        ASSERT_OK(cycle.Validate());
        for (std::int64_t step = 0; step < total; ++step) {
          ASSERT_GE(cycle.FactorAt(step), 1 / 25.0 / 1e4 * 0.999) << total << ", " << rise;
          ASSERT_LE(cycle.FactorAt(step), 1.0) << total << ", " << rise;
        }
        EXPECT_NEAR(cycle.FactorAt(total - 1), 1 / 25.0 / 1e4, 1e-12);
      }
    }
  }
}

TEST(Schedule, WarmupStableDecayIsStableAndThenFallsInItsShape) {
  WarmupStableDecaySchedule schedule{
      .warmup_steps = 2, .total_steps = 20, .decay_steps = 8, .final_factor = 0.1};
  EXPECT_EQ(schedule(0), 0.5);
  for (std::int64_t step = 1; step <= 12; ++step) EXPECT_EQ(schedule(step), 1) << step;
  EXPECT_DOUBLE_EQ(schedule(14), 0.1 + 0.9 * 0.75);
  schedule.shape = DecayShape::kOneMinusRoot;
  EXPECT_DOUBLE_EQ(schedule(14), 0.1 + 0.9 * 0.5);
  schedule.shape = DecayShape::kCosine;
  EXPECT_DOUBLE_EQ(schedule(14), 0.1 + 0.9 * (1 + std::numbers::sqrt2 / 2) / 2);
  for (const DecayShape shape :
       {DecayShape::kLinear, DecayShape::kCosine, DecayShape::kOneMinusRoot}) {
    schedule.shape = shape;
    EXPECT_DOUBLE_EQ(schedule(20), 0.1);
    EXPECT_DOUBLE_EQ(schedule(99), 0.1);
  }
}

TEST(Schedule, SequencesNest) {
  const Schedule inner = SequentialSchedule{
      {ConstantSchedule{}, [](std::int64_t step) { return 10.0 + static_cast<double>(step); }},
      {3}};
  const Schedule outer = SequentialSchedule{{ConstantSchedule{.warmup_steps = 2}, inner}, {4}};
  EXPECT_OK(outer.Validate());
  EXPECT_EQ(outer.FactorAt(0), 0.5);
  EXPECT_EQ(outer.FactorAt(3), 1);
  EXPECT_EQ(outer.FactorAt(6), 1);
  EXPECT_EQ(outer.FactorAt(7), 10);
  EXPECT_EQ(outer.FactorAt(9), 12);
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

TEST(Schedule, EveryOtherBadOptionIsNamedToo) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const ConstantSchedule constant;
  const std::pair<Schedule, const char*> cases[] = {
      {PolynomialSchedule{.total_steps = 0}, "polynomial schedule: total_steps is 0"},
      {PolynomialSchedule{.total_steps = 5, .power = 0}, "polynomial schedule: power is 0"},
      {ExponentialSchedule{.decay = 0}, "exponential schedule: decay is 0"},
      {ExponentialSchedule{.decay = nan}, "exponential schedule: decay is nan"},
      {ExponentialSchedule{.warmup_steps = -1}, "exponential schedule: warmup_steps is -1"},
      {StepSchedule{}, "step schedule: every is 0"},
      {StepSchedule{.every = 1, .decay = -1}, "step schedule: decay is -1"},
      {MultiStepSchedule{.milestones = {4, 4}}, "multi-step schedule: milestone 4"},
      {MultiStepSchedule{.milestones = {-1}}, "multi-step schedule: milestone -1"},
      {WarmupStableDecaySchedule{.total_steps = 5}, "decay_steps is 0; it must be 1 to"},
      {WarmupStableDecaySchedule{.warmup_steps = 2, .total_steps = 5, .decay_steps = 4},
       "decay_steps is 4; it must be 1 to the steps after warm-up, 3"},
      {OneCycleSchedule{.total_steps = 1}, "one-cycle schedule: total_steps is 1"},
      {OneCycleSchedule{.total_steps = 9, .rise = 1.5}, "one-cycle schedule: rise is 1.5"},
      {OneCycleSchedule{.total_steps = 9, .rise = 0.6, .phases = OneCyclePhases::kThree},
       "rise is 0.6; it must be 0 to 0.5"},
      {OneCycleSchedule{.total_steps = 9, .initial_divisor = 0}, "initial_divisor is 0"},
      {OneCycleSchedule{.total_steps = 9, .final_divisor = nan}, "final_divisor is nan"},
      {OneCycleSchedule{.total_steps = 9, .shape = DecayShape::kOneMinusRoot}, "kOneMinusRoot"},
      {ChainedSchedule{}, "chained schedule: schedules is empty"},
      {ChainedSchedule{{constant, StepSchedule{}}}, "chained schedule, number 1: step schedule"},
      {SequentialSchedule{{constant}, {1}}, "1 schedules and 1 milestones"},
      {SequentialSchedule{}, "0 schedules and 0 milestones"},
      {SequentialSchedule{{constant, constant}, {0}}, "milestone 0 must be at least 1"},
      {SequentialSchedule{{constant, StepSchedule{}}, {2}}, "sequential schedule, number 1: step"},
  };
  for (const auto& [schedule, text] : cases) {
    EXPECT_THAT(schedule.Validate(), StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
  }
}

}  // namespace
}  // namespace ait
