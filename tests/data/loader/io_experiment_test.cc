// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/io_experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace ait {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A dataset of numbers that takes its time for each, unless it had time to read ahead.
class SlowNumbers {
 public:
  SlowNumbers(ManualClock& clock, Duration cost, int count)
      : clock_(clock), cost_(cost), left_(count) {}
  const int* Next() {
    if (left_ == 0) return nullptr;
    --left_;
    clock_.Advance(cost_);
    ++value_;
    return &value_;
  }

 private:
  ManualClock& clock_;
  Duration cost_;
  int left_;
  int value_ = -1;
};

struct Outcome {
  std::vector<int> delivered;
  IoReport report;
};

Outcome RunExperiment(Duration read, Duration compute, int count, const IoExperimentOptions& base) {
  ManualClock clock;
  SlowNumbers numbers(clock, read, count);
  IoExperimentOptions options = base;
  options.clock = &clock;
  IoExperiment<int> experiment(options, [&] { return numbers.Next(); });
  Outcome outcome;
  while (!experiment.is_done()) {
    const int* number = experiment.Next();
    if (number == nullptr) break;
    outcome.delivered.push_back(*number);
    clock.Advance(compute);
  }
  outcome.report = experiment.report();
  return outcome;
}

using std::chrono::milliseconds;

TEST(IoExperimentTest, EveryBatchIsDeliveredOnceAndInOrder) {
  const Outcome outcome = RunExperiment(milliseconds(1), milliseconds(2), 1'000,
                                        {.warmup_steps = 2, .steps = 6, .turns = 2});
  // The call after the last step ends the experiment, and delivers a batch of its own.
  ASSERT_GE(outcome.delivered.size(), 2u + 4u * 6u);
  for (std::size_t i = 0; i < outcome.delivered.size(); ++i) {
    EXPECT_EQ(outcome.delivered[i], static_cast<int>(i));
  }
}

TEST(IoExperimentTest, ThePriceOfTheDataIsTheDifference) {
  const Outcome outcome = RunExperiment(milliseconds(30), milliseconds(70), 1'000, {});
  EXPECT_DOUBLE_EQ(outcome.report.step_s, 0.1);
  EXPECT_DOUBLE_EQ(outcome.report.step_from_memory_s, 0.07);
  EXPECT_TRUE(outcome.report.is_significant);
  EXPECT_NEAR(outcome.report.speedup, 100.0 / 70, 1e-9);
  EXPECT_NEAR(outcome.report.data_share, 0.3, 1e-9);
  EXPECT_THAT(ToText(outcome.report), HasSubstr("1.429 times as fast"));
}

// A dataset that reads ahead: a batch each `cost`, while fewer than `most` are ready.
class ReadsAhead {
 public:
  ReadsAhead(ManualClock& clock, Duration cost, int most)
      : clock_(clock), cost_(cost), most_(most), next_at_(clock.now() + cost) {}
  const int* Next() {
    Read();
    if (ready_ == 0) {
      clock_.Advance(next_at_ - clock_.now());
      Read();
    }
    if (ready_-- == most_) next_at_ = clock_.now() + cost_;
    ++value_;
    return &value_;
  }

 private:
  void Read() {
    for (; ready_ < most_ && next_at_ <= clock_.now(); next_at_ += cost_) ++ready_;
  }

  ManualClock& clock_;
  const Duration cost_;
  const int most_;
  Time next_at_;
  int ready_ = 0;
  int value_ = -1;
};

TEST(IoExperimentTest, WhatWasReadAheadHidesNothing) {
  for (const int most : {1, 13, 300}) {
    for (const int ahead : {0, most}) {
      for (const int cost : {15, 5, 0}) {
        ManualClock clock;
        ReadsAhead data(clock, cost == 0 ? Duration(1'000) : milliseconds(cost), most);
        IoExperiment<int> experiment({.ahead = ahead, .clock = &clock},
                                     [&] { return data.Next(); });
        clock.Advance(std::chrono::minutes(1));  // all that fits is ready before the first step
        for (int i = 0; !experiment.is_done(); ++i) {
          ASSERT_LT(i, 3'000);
          const int* number = experiment.Next();
          ASSERT_NE(number, nullptr);
          ASSERT_EQ(*number, i);
          clock.Advance(milliseconds(10));
        }
        const IoReport report = experiment.report();
        EXPECT_EQ(report.is_significant, cost == 15) << most << " ahead, " << cost << " ms";
        EXPECT_NEAR(report.speedup, cost == 15 ? 1.5 : 1, 0.02) << most << " ahead";
      }
    }
  }
}

TEST(IoExperimentTest, CopiesAreNotThePriceOfTheData) {
  ManualClock clock;
  ReadsAhead data(clock, milliseconds(5), 8);
  IoExperiment<int> experiment(
      {.clock = &clock}, [&] { return data.Next(); },
      [&](const int& number) -> StatusOr<int> {
        clock.Advance(milliseconds(2));
        return number;
      });
  while (!experiment.is_done()) {
    ASSERT_NE(experiment.Next(), nullptr);
    clock.Advance(milliseconds(10));
  }
  EXPECT_FALSE(experiment.report().is_significant);
}

TEST(IoExperimentTest, FreeDataNeedsNoAdvice) {
  const Outcome outcome = RunExperiment(Duration::zero(), milliseconds(10), 1'000, {});
  EXPECT_FALSE(outcome.report.is_significant);
  EXPECT_EQ(outcome.report.speedup, 1);
  EXPECT_THAT(Advise(outcome.report), IsEmpty());
  EXPECT_THAT(ToText(outcome.report), HasSubstr("does not hold the run up"));
}

TEST(IoExperimentTest, DataThatEndsEarlyEndsItWithoutAWrongAnswer) {
  for (int count = 0; count < 24; ++count) {
    const Outcome outcome = RunExperiment(milliseconds(1), milliseconds(1), count, {.steps = 4});
    EXPECT_EQ(outcome.delivered.size(), static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < outcome.delivered.size(); ++i) {
      EXPECT_EQ(outcome.delivered[i], static_cast<int>(i));
    }
    if (outcome.report.steps == 0) {
      EXPECT_THAT(ToText(outcome.report), HasSubstr("nothing was measured"));
    }
  }
}

TEST(IoExperimentTest, OptionsOutOfRangeBecomeTheNearest) {
  const Outcome outcome = RunExperiment(milliseconds(1), milliseconds(1), 100,
                                        {.warmup_steps = -1, .steps = 0, .turns = 0});
  EXPECT_GT(outcome.report.steps, 0);
}

TEST(IoExperimentTest, ABatchThatCannotBeCopiedIsDeliveredAllTheSame) {
  ManualClock clock;
  SlowNumbers numbers(clock, milliseconds(1), 40);
  int copies = 0;
  IoExperiment<int> experiment(
      {.warmup_steps = 1, .steps = 6, .clock = &clock}, [&] { return numbers.Next(); },
      [&](const int& number) -> StatusOr<int> {
        if (++copies == 4) return ResourceExhaustedError("no memory");
        return number;
      });
  for (int i = 0; i < 40; ++i) {
    const int* number = experiment.Next();
    ASSERT_NE(number, nullptr);
    EXPECT_EQ(*number, i);
    EXPECT_EQ(experiment.is_done(), i >= 4) << i;
  }
  EXPECT_EQ(experiment.Next(), nullptr);
}

TEST(IoExperimentTest, FactsAreThoseOfTheLoader) {
  EXPECT_FALSE(FactsOf({}).in_storage.has_value()) << "nothing is known yet";
  const IoFacts facts = FactsOf({.read = milliseconds(10),
                                 .transform = milliseconds(25),
                                 .collate = milliseconds(5),
                                 .cache = {.hits = 3, .misses = 1}});
  EXPECT_DOUBLE_EQ(facts.in_storage.value(), 0.25);
  EXPECT_DOUBLE_EQ(facts.in_transforms.value(), 0.625);
  EXPECT_DOUBLE_EQ(facts.in_collation.value(), 0.125);
  EXPECT_DOUBLE_EQ(facts.cache_hits.value(), 0.75);
}

TEST(IoExperimentTest, AdviceFollowsTheFacts) {
  const IoReport slow{.step_s = 0.2,
                      .step_from_memory_s = 0.1,
                      .steps = 20,
                      .speedup = 2,
                      .data_share = 0.5,
                      .is_significant = true};
  const auto first = [&](const IoFacts& facts) { return Advise(slow, facts).at(0); };
  EXPECT_THAT(first({.in_storage = 0.9, .is_one_file_a_sample = true}), HasSubstr("ait pack"));
  EXPECT_THAT(first({.in_storage = 0.9, .is_remote = true}), HasSubstr("ait stage"));
  EXPECT_THAT(first({.in_storage = 0.9, .bytes_per_read = 4096}), HasSubstr("larger pieces"));
  EXPECT_THAT(first({.in_storage = 0.1, .in_transforms = 0.8, .threads = 2, .cpus = 8}),
              HasSubstr("2 of 8 CPUs"));
  EXPECT_THAT(first({.in_storage = 0.1, .in_transforms = 0.8, .threads = 8, .cpus = 8}),
              HasSubstr("decode less"));
  EXPECT_THAT(Advise(slow), Not(IsEmpty())) << "something to do even if nothing is known";
}

}  // namespace
}  // namespace ait
