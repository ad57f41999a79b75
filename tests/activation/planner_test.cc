// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/planner.h"

#include <ATen/ops/relu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <stdexcept>

#include "activation/chain_model.h"
#include "activation/live_bytes_internal.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::ChainModel;
using testing::Equal;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr int kBlocks = 8;
constexpr std::int64_t kRows = 128;
constexpr std::int64_t kNarrow = kRows * ChainModel::kWidth * 4;    // bytes of x
constexpr std::int64_t kWideBytes = kRows * ChainModel::kWide * 4;  // of x w

const SegmentCost& SegmentNamed(const StepProfile& profile, std::string_view name) {
  for (const SegmentCost& segment : profile.segments) {
    if (segment.name == name) return segment;
  }
  ADD_FAILURE() << "no segment " << name << " in\n" << profile.Describe();
  return profile.segments.front();
}

class MemoryPlannerTest : public ::testing::Test {
 protected:
  MemoryPlannerTest() { model_.Step(plan_, input_); }

  Status Step() {
    model_.Step(plan_, input_);
    return OkStatus();
  }
  const std::function<Status()> step_ = [this] { return Step(); };

  ChainModel model_{kBlocks};
  at::Tensor input_ = at::randn({kRows, ChainModel::kWidth});
  ActivationPlan plan_;
  MemoryPlanner planner_{plan_};
};

TEST_F(MemoryPlannerTest, MeasuresWhatABlockHoldsAndFrees) {
  const auto profile = planner_.Measure(step_, 4);
  ASSERT_OK(profile);
  EXPECT_EQ(profile->micro_batch, 4);
  for (const std::string& name : model_.names) {
    const SegmentCost& block = SegmentNamed(*profile, name);
    EXPECT_EQ(block.keep.held_bytes, 2 * kWideBytes + kNarrow) << profile->Describe();
    ASSERT_TRUE(block.recompute.has_value());
    EXPECT_NEAR(block.recompute->held_bytes, kNarrow, 6000);  // and the state of a generator
    EXPECT_GE(block.keep.peak_bytes, block.keep.held_bytes);
    EXPECT_GT(block.recompute->seconds, 0);
  }
  // The peak of all that is kept is the one that was measured.
  EXPECT_EQ(PeakOf(profile->segments, {}).bytes, profile->peak_bytes);
  EXPECT_GE(profile->peak_bytes, kBlocks * (2 * kWideBytes + kNarrow));
}

TEST_F(MemoryPlannerTest, KeepsToBudgetsAndToItsPrediction) {
  ASSERT_OK(planner_.Measure(step_));
  const auto gradients = model_.Gradients();
  const std::int64_t all = planner_.profile().peak_bytes;
  int before = kBlocks + 1;
  for (const std::int64_t budget : {all * 35 / 100, all / 2, all * 3 / 4, all}) {
    const auto schedule = planner_.Choose(Bytes(budget));
    ASSERT_OK(schedule);
    const auto outcome = planner_.Check(step_);
    ASSERT_OK(outcome);
    EXPECT_LE(outcome->predicted_bytes, budget);
    EXPECT_LE(std::abs(outcome->error()), 0.05) << outcome->Describe();
    EXPECT_LE(outcome->measured_bytes, budget * 102 / 100) << outcome->Describe();
    EXPECT_LE(outcome->recomputed, before) << "more memory, no more work";
    EXPECT_EQ(outcome->segments, kBlocks);
    before = outcome->recomputed;
    EXPECT_TRUE(Equal(model_.Gradients(), gradients)) << "the same bits";
  }
  EXPECT_EQ(before, 0);
}

TEST_F(MemoryPlannerTest, TellsTheLeastThatIsPossible) {
  EXPECT_THAT(planner_.Choose(MiB(1)), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(planner_.Check(step_), StatusIs(StatusCode::kFailedPrecondition));
  ASSERT_OK(planner_.Measure(step_));
  const auto schedule = planner_.Choose(KiB(64));
  EXPECT_THAT(schedule, StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(Message(schedule.status()), HasSubstr("is below the least that is possible"));
  EXPECT_THAT(Message(schedule.status()), HasSubstr("blocks."));
  const auto least = LeastMemory(planner_.profile().segments);
  ASSERT_OK(least);
  EXPECT_OK(planner_.Choose(Bytes(least->peak.bytes)));
  EXPECT_THAT(planner_.Choose(Bytes(least->peak.bytes - 1)),
              StatusIs(StatusCode::kResourceExhausted));
}

TEST_F(MemoryPlannerTest, KnowsOtherMicroBatchesFromTwo) {
  const auto measure = [&](std::int64_t samples) {
    input_ = at::randn({samples * kRows, ChainModel::kWidth});
    return planner_.Measure(step_, samples);
  };
  const auto one = measure(1), two = measure(2), five = measure(5);
  ASSERT_OK(one);
  ASSERT_OK(two);
  ASSERT_OK(five);
  const auto predicted = ProfileFor(5, *one, *two);
  ASSERT_OK(predicted);
  const std::int64_t bytes = PeakOf(predicted->segments, {}).bytes;
  EXPECT_NEAR(bytes, five->peak_bytes, 0.02 * five->peak_bytes) << predicted->Describe();
  EXPECT_THAT(ProfileFor(5, *one, *one), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(MemoryPlannerTest, RefusesStepsThatItCannotTellApart) {
  const auto twice = planner_.Measure([&] {
    AIT_RETURN_IF_ERROR(Step());
    return Step();
  });
  EXPECT_THAT(Message(twice.status()), HasSubstr("segment blocks.0 ran twice"));
  EXPECT_THAT(Message(planner_.Measure([] { return OkStatus(); }).status()),
              HasSubstr("no segment ran"));
}

TEST_F(MemoryPlannerTest, PassesOnWhatTheStepSays) {
  EXPECT_THAT(planner_.Measure([] { return AbortedError("enough"); }),
              StatusIs(StatusCode::kAborted));
  const auto thrown =
      planner_.Measure([]() -> Status { throw std::runtime_error("out of patience"); });
  EXPECT_THAT(Message(thrown.status()), HasSubstr("out of patience"));
  EXPECT_OK(planner_.Measure(step_)) << "nothing is left of the failed ones";
}

// clang-format off
StatusOr<PlanOutcome> AsThePageSays(const std::function<Status(ActivationPlan&)>& step) {
  ActivationPlan plan;  // in the model: x = plan.Run("blocks.3", block, x);
  MemoryPlanner planner(plan);
  AIT_RETURN_IF_ERROR(step(plan));  // gradients and states are there from now on
  const auto take_step = [&] { return step(plan); };
  AIT_ASSIGN_OR_RETURN(const StepProfile profile, planner.Measure(take_step));
  AIT_RETURN_IF_ERROR(planner.Choose(Bytes(profile.peak_bytes / 2)).status());
  AIT_ASSIGN_OR_RETURN(const PlanOutcome outcome, planner.Check(take_step));
  std::puts(outcome.Describe().c_str());  // predicted beside measured
  return outcome;
}
// clang-format on

TEST(PlannerPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_PAGE, AIT_SOURCE);
  const ChainModel model(kBlocks);
  const at::Tensor input = at::randn({kRows, ChainModel::kWidth});
  const auto outcome = AsThePageSays([&](ActivationPlan& plan) {
    model.Step(plan, input);
    return OkStatus();
  });
  ASSERT_OK(outcome);
  EXPECT_LE(outcome->measured_bytes, outcome->kept_bytes * 52 / 100);
}

TEST(LiveBytes, CountsAnAddressOnceThatAnotherThreadHasFreed) {
  internal::LiveBytes live;
  int block = 0;
  c10::reportMemoryUsageToProfiler(&block, 100, 0, 0, c10::Device(c10::DeviceType::CPU));
  EXPECT_EQ(live.live(), 100);
  c10::reportMemoryUsageToProfiler(&block, 70, 0, 0, c10::Device(c10::DeviceType::CPU));
  EXPECT_EQ(live.live(), 70);
  EXPECT_EQ(live.TakePeak(), 100);
  c10::reportMemoryUsageToProfiler(&block, -70, 0, 0, c10::Device(c10::DeviceType::CPU));
  EXPECT_EQ(live.live(), 0);
}

// What recomputing one segment does not give back.
TEST(MemoryPlanner, CountsSharedStoragesInputsAndResultsAsHeld) {
  const at::Tensor w = at::randn({64, 64}).mul_(0.1).set_requires_grad(true);
  w.mutable_grad() = at::zeros_like(w);
  const at::Tensor input = at::randn({256, 64});
  const std::int64_t bytes = 256 * 64 * 4;
  ActivationPlan plan;
  const auto step = [&] {
    const at::Tensor x = at::matmul(input, w);
    // Its result is what it saves: nothing is freed.
    const at::Tensor y = plan.Run("result", [](const at::Tensor& in) { return at::relu(in); }, x);
    // Both save the sine of the same tensor, which the first has made.
    at::Tensor sine;
    const at::Tensor first = plan.Run(
        "maker",
        [&](const at::Tensor& in) {
          sine = in.sin();
          return sine.mul(sine).mul(in);
        },
        y);
    const at::Tensor second =
        plan.Run("user", [&](const at::Tensor& in) { return sine.mul(in).mul(in); }, y);
    sine = at::Tensor();
    first.add(second).sum().backward();
    return OkStatus();
  };
  ASSERT_OK(step());
  MemoryPlanner planner(plan);
  const auto profile = planner.Measure(step);
  ASSERT_OK(profile);
  EXPECT_FALSE(SegmentNamed(*profile, "result").recompute.has_value()) << profile->Describe();
  const SegmentCost& maker = SegmentNamed(*profile, "maker");
  ASSERT_TRUE(maker.recompute.has_value());
  // It holds its result, the sine, and the square; only the square is its own.
  EXPECT_NEAR(maker.keep.held_bytes - maker.recompute->held_bytes, bytes, 6000)
      << profile->Describe();
}

}  // namespace
}  // namespace ait
