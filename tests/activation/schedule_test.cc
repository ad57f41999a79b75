// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

using Actions = std::vector<SegmentAction>;

// Calls `visit` with every choice that there is.
template <typename Visit>
void ForEachChoice(const std::vector<SegmentCost>& segments, const Visit& visit) {
  Actions actions(segments.size());
  const auto recurse = [&](const auto& self, std::size_t i) -> void {
    if (i == segments.size()) return visit(actions);
    for (const SegmentAction action :
         {SegmentAction::kKeep, SegmentAction::kRecompute, SegmentAction::kOffload}) {
      if (!segments[i].allows(action)) continue;
      actions[i] = action;
      self(self, i + 1);
    }
  };
  recurse(recurse, 0);
}

std::vector<SegmentCost> RandomSegments(std::mt19937& random, int count, int range) {
  const auto number = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  std::vector<SegmentCost> segments;
  for (int i = 0; i < count; ++i) {
    SegmentCost& segment = segments.emplace_back();
    segment.name = StrCat("segment ", i);
    const int held = number(range) - range / 10;  // now and then memory is given back
    segment.keep = {.held_bytes = held, .peak_bytes = std::max(held, 0) + number(range)};
    const auto cheaper = [&](double seconds) {
      return ActionCost{.held_bytes = held - number(range),
                        .peak_bytes = number(2 * range),
                        .seconds = seconds * number(8)};
    };
    if (number(3) > 0) segment.recompute = cheaper(1);
    if (number(3) == 0) segment.offload = cheaper(0.5);
  }
  return segments;
}

TEST(Schedule, PeakIsWhatIsHeldBeforeAndWhatRuns) {
  const std::vector<SegmentCost> segments = {
      {.name = "a",
       .keep = {.held_bytes = 10, .peak_bytes = 12},
       .recompute = ActionCost{.held_bytes = 2, .peak_bytes = 13, .seconds = 1}},
      {.name = "b", .keep = {.held_bytes = 5, .peak_bytes = 9}},
      {.name = "c", .keep = {.held_bytes = 1, .peak_bytes = 3}}};
  SchedulePeak peak = PeakOf(segments, {});
  EXPECT_EQ(peak.bytes, 19);
  EXPECT_EQ(peak.segment, 1);
  EXPECT_EQ(peak.held_bytes, 10);
  EXPECT_EQ(peak.working_bytes, 9);
  const Actions recompute = {SegmentAction::kRecompute, SegmentAction::kKeep, SegmentAction::kKeep};
  peak = PeakOf(segments, recompute);
  EXPECT_EQ(peak.bytes, 13);  // of the segment that is rebuilt
  EXPECT_EQ(peak.segment, 0);
  EXPECT_EQ(SecondsOf(segments, recompute), 1);
  EXPECT_EQ(PeakOf({}, {}).bytes, 0);
}

// The oracle: all choices. Numbers are whole, so sums are exact and equality is meant.
TEST(FastestWithin, IsTheBestOfAllChoices) {
  std::mt19937 random(1);
  int feasible = 0, infeasible = 0;
  for (int round = 0; round < 400; ++round) {
    const auto segments = RandomSegments(random, 1 + round % 7, 40);
    for (const std::int64_t budget : {20, 40, 60, 80, 120, 200, 400}) {
      double best = std::numeric_limits<double>::infinity();
      ForEachChoice(segments, [&](const Actions& actions) {
        if (PeakOf(segments, actions).bytes <= budget) {
          best = std::min(best, SecondsOf(segments, actions));
        }
      });
      const auto schedule = FastestWithin(segments, Bytes(budget));
      ASSERT_EQ(schedule.ok(), best < std::numeric_limits<double>::infinity());
      if (!schedule.ok()) {
        ++infeasible;
        continue;
      }
      ++feasible;
      EXPECT_EQ(schedule->seconds, best);
      EXPECT_EQ(schedule->seconds, SecondsOf(segments, schedule->actions));
      EXPECT_EQ(schedule->peak.bytes, PeakOf(segments, schedule->actions).bytes);
      EXPECT_LE(schedule->peak.bytes, budget);
      EXPECT_EQ(schedule->rounding, 0);
    }
  }
  EXPECT_GT(feasible, 500);
  EXPECT_GT(infeasible, 200);
}

TEST(LeastMemory, IsTheLeastOfAllChoices) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const auto segments = RandomSegments(random, 1 + round % 7, 60);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    double fastest = 0;
    ForEachChoice(segments, [&](const Actions& actions) {
      const std::int64_t peak = PeakOf(segments, actions).bytes;
      const double seconds = SecondsOf(segments, actions);
      if (peak < least || (peak == least && seconds < fastest)) fastest = seconds;
      least = std::min(least, peak);
    });
    const auto schedule = LeastMemory(segments);
    ASSERT_OK(schedule);
    EXPECT_EQ(schedule->peak.bytes, least);
    EXPECT_EQ(schedule->seconds, fastest);
  }
}

TEST(FastestWithin, MoreBudgetNeverTakesMoreTime) {
  std::mt19937 random(3);
  const auto segments = RandomSegments(random, 60, 1000);
  const auto least = LeastMemory(segments);
  ASSERT_OK(least);
  double before = std::numeric_limits<double>::infinity();
  for (int part = 0; part <= 50; ++part) {
    const std::int64_t budget =
        least->peak.bytes + (PeakOf(segments, {}).bytes - least->peak.bytes) * part / 50;
    const auto schedule = FastestWithin(segments, Bytes(budget));
    ASSERT_OK(schedule);
    EXPECT_LE(schedule->seconds, before);
    before = schedule->seconds;
  }
  EXPECT_EQ(before, 0) << "the budget of all that is kept keeps all";
}

// A front that is cut keeps to the budget, and loses no more than it says.
TEST(FastestWithin, SaysHowFarRoundingMayBeOff) {
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    auto segments = RandomSegments(random, 30, 100'000);
    for (SegmentCost& segment : segments) {
      if (segment.recompute)
        segment.recompute->seconds += 1e-3 * static_cast<double>(random() % 99);
    }
    const std::int64_t budget = PeakOf(segments, {}).bytes * 2 / 3;
    const auto rounded = FastestWithin(segments, Bytes(budget), {.most_points = 64});
    if (!rounded.ok()) continue;
    EXPECT_LE(rounded->peak.bytes, budget);
    EXPECT_GT(rounded->rounding, 0);
    const auto exact = FastestWithin(segments, Bytes(budget), {.most_points = 1'000'000});
    ASSERT_OK(exact);
    EXPECT_GE(rounded->seconds, exact->seconds - 1e-9);
    const auto tighter =
        FastestWithin(segments, Bytes(budget - rounded->rounding), {.most_points = 1'000'000});
    if (tighter.ok()) {
      EXPECT_LE(rounded->seconds, tighter->seconds + 1e-9);
    }
  }
}

TEST(FastestWithin, OfEqualSegmentsRecomputesAsManyAsNeeded) {
  const SegmentCost block{
      .name = "block",
      .keep = {.held_bytes = 100, .peak_bytes = 120},
      .recompute = ActionCost{.held_bytes = 10, .peak_bytes = 120, .seconds = 1}};
  const std::vector<SegmentCost> blocks(1000, block);
  const std::int64_t all = PeakOf(blocks, {}).bytes;
  EXPECT_EQ(all, 999 * 100 + 120);
  const auto half = FastestWithin(blocks, Bytes(all / 2));
  ASSERT_OK(half);
  EXPECT_EQ(half->seconds, 556);  // (100020 - 50010) / 90, rounded up
  EXPECT_EQ(half->rounding, 0);
}

TEST(FastestWithin, TellsTheLeastThatIsPossibleAndWhoSetsIt) {
  const std::vector<SegmentCost> segments = {
      {.name = "small",
       .keep = {.held_bytes = 10, .peak_bytes = 10},
       .recompute = ActionCost{.held_bytes = 4, .peak_bytes = 10, .seconds = 1}},
      {.name = "big",
       .keep = {.held_bytes = 500, .peak_bytes = 700},
       .recompute = ActionCost{.held_bytes = 1, .peak_bytes = 700, .seconds = 1}}};
  const auto schedule = FastestWithin(segments, Bytes(703));
  EXPECT_THAT(schedule, StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(Message(schedule.status()), HasSubstr("704 bytes): segment big sets it"));
  EXPECT_THAT(Message(schedule.status()), HasSubstr("703 bytes is below"));
  EXPECT_OK(FastestWithin(segments, Bytes(704)));
  EXPECT_THAT(FastestWithin(segments, Bytes(-1)), StatusIs(StatusCode::kResourceExhausted));
}

TEST(FastestWithin, RefusesCostsThatAreNone) {
  const auto with = [](ActionCost keep) {
    return FastestWithin(std::vector<SegmentCost>{{.name = "odd", .keep = keep}}, Bytes(1))
        .status();
  };
  EXPECT_THAT(Message(with({.peak_bytes = -1})), HasSubstr("segment odd"));
  EXPECT_THAT(with({.seconds = -1}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(with({.seconds = std::numeric_limits<double>::quiet_NaN()}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(with({.held_bytes = std::numeric_limits<std::int64_t>::max(), .peak_bytes = 1}),
              StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(FastestWithin({}, Bytes(1), {.most_points = 1}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(FastestWithin({}, Bytes(0)));
}

// The recursion that Revolve solves: save after m steps, reverse the rest, reverse the first m.
std::int64_t LeastForwards(int steps, int slots) {
  if (steps == 1) return 0;
  if (slots == 1) return static_cast<std::int64_t>(steps) * (steps - 1) / 2;
  static std::vector<std::vector<std::int64_t>> known(64, std::vector<std::int64_t>(64, -1));
  std::int64_t& least = known[static_cast<std::size_t>(steps)][static_cast<std::size_t>(slots)];
  if (least >= 0) return least;
  least = std::numeric_limits<std::int64_t>::max();
  for (int m = 1; m < steps; ++m) {
    least = std::min(least, m + LeastForwards(steps - m, slots - 1) + LeastForwards(m, slots));
  }
  return least;
}

TEST(Revolve, RunsAsFewForwardsAsThereCanBe) {
  for (int steps = 1; steps <= 40; ++steps) {
    for (int slots = 1; slots <= 12; ++slots) {
      EXPECT_EQ(RevolveForwards(steps, slots), LeastForwards(steps, slots))
          << steps << " steps, " << slots << " slots";
    }
  }
}

// Runs the actions on a machine that has `slots` slots and one current input.
TEST(Revolve, IsAScheduleThatRuns) {
  for (int steps = 1; steps <= 24; ++steps) {
    for (int slots = 1; slots <= 6; ++slots) {
      std::vector<int> held(static_cast<std::size_t>(slots), -1);
      int current = 0, next_backward = steps - 1;
      std::int64_t advanced = 0;
      for (const RevolveAction& action : Revolve(steps, slots)) {
        using Kind = RevolveAction::Kind;
        if (action.kind == Kind::kSave) {
          ASSERT_EQ(action.step, current);
          held.at(static_cast<std::size_t>(action.slot)) = current;
        } else if (action.kind == Kind::kRestore) {
          ASSERT_EQ(held.at(static_cast<std::size_t>(action.slot)), action.step);
          current = action.step;
        } else if (action.kind == Kind::kAdvance) {
          ASSERT_GT(action.step, current);
          advanced += action.step - current;
          current = action.step;
        } else {
          ASSERT_EQ(action.step, current);
          ASSERT_EQ(action.step, next_backward--);
        }
      }
      EXPECT_EQ(next_backward, -1);
      EXPECT_EQ(advanced, RevolveForwards(steps, slots));
    }
  }
}

TEST(Sqrt, TakesAboutTwiceTheRootAndOneMoreForward) {
  for (int steps = 1; steps <= 400; ++steps) {
    const int slots = SqrtSlots(steps);
    EXPECT_GE(slots, 1);
    EXPECT_LE(slots, 2 * std::sqrt(steps) + 1) << steps;
    EXPECT_LT(SqrtForwards(steps), 2 * steps);
    EXPECT_GE(SqrtForwards(steps), RevolveForwards(steps, slots)) << "Revolve is optimal";
  }
  EXPECT_EQ(SqrtForwards(100), 99 + 9 * 9);
  EXPECT_EQ(SqrtSlots(100), 19);
}

}  // namespace
}  // namespace ait
