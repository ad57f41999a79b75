// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ait/data/plan/data_plan.h"
#include "data/plan/mix_pattern_internal.h"
#include "data/plan/plan_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::internal::MixPattern;
using ::ait::testing::CountsOf;
using ::ait::testing::Deliver;
using ::ait::testing::Delivery;
using ::ait::testing::RandomPlans;
using ::ait::testing::Source;

DataPlan Make(std::vector<PlanSource> sources, DataPlanOptions options) {
  StatusOr<DataPlan> plan = DataPlan::Create(std::move(sources), std::move(options));
  EXPECT_OK(plan.status());
  return *std::move(plan);
}

// The vectors of docs/resuming.md, by testdata/plan_orders.py.
TEST(DataPlanMixture, GivesTheDocumentedVectors) {
  const auto turns = [](std::vector<std::int64_t> weights) {
    const auto pattern = MixPattern::Create(std::move(weights));
    EXPECT_OK(pattern.status());
    std::vector<int> sources;
    for (std::int64_t p = 0; p < pattern->period(); ++p) sources.push_back(pattern->At(p).source);
    return sources;
  };
  EXPECT_EQ(turns({7, 3}), (std::vector<int>{0, 1, 0, 0, 0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(turns({1, 1, 1}), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(turns({5, 3, 1, 1}), (std::vector<int>{0, 1, 0, 1, 0, 2, 0, 3, 0, 1}));
  EXPECT_EQ(turns({6, 2}), (std::vector<int>{0, 0, 1, 0}));
  const DataPlan plan =
      Make({Source("a", 5), Source("b", 4)}, {.seed = 1,
                                              .stages = {{.shares = {{.weight = 7}, {.weight = 3}},
                                                          .mixture_end = MixtureEnd::kSamples,
                                                          .epoch_samples = 20}}});
  const std::vector<std::pair<int, int>> expected = {
      {0, 3}, {1, 3}, {0, 2}, {0, 0}, {0, 1}, {1, 0}, {0, 4}, {0, 1}, {1, 1}, {0, 0},
      {0, 4}, {1, 2}, {0, 2}, {0, 3}, {0, 4}, {1, 2}, {0, 2}, {0, 0}, {1, 1}, {0, 1}};
  for (std::int64_t p = 0; p < 20; ++p) {
    const PlannedSample sample = plan.At(0, p);
    EXPECT_EQ(std::pair(int{sample.source}, static_cast<int>(sample.id)),
              expected[static_cast<std::size_t>(p)]);
  }
}

TEST(MixPatternTest, HasExactRatiosThatAreNeverOffByOne) {
  RandomPlans random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> weights;
    const std::int64_t sources = 1 + random.Below(12);
    for (std::int64_t s = 0; s < sources; ++s) weights.push_back(1 + random.Below(200));
    const auto pattern = MixPattern::Create(weights);
    ASSERT_OK(pattern.status());
    const std::int64_t total = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    std::vector<std::int64_t> had(weights.size());
    for (std::int64_t place = 0; place < 2 * pattern->period() + 5; ++place) {
      for (std::size_t s = 0; s < weights.size(); ++s) {
        ASSERT_EQ(pattern->CountBefore(s, place), had[s]);
        // |had - place·w/W| < 1, in integers.
        ASSERT_LT(std::abs(had[s] * total - place * weights[s]), total);
      }
      const MixPattern::Turn turn = pattern->At(place);
      const auto s = static_cast<std::size_t>(turn.source);
      ASSERT_EQ(turn.number, had[s]);
      ASSERT_EQ(pattern->PlaceOf(s, turn.number), place);
      ++had[s];
    }
  }
}

TEST(MixPatternTest, TakesLongPeriods) {
  const auto pattern = MixPattern::Create({1, (1 << 16) - 1});
  ASSERT_OK(pattern.status());
  EXPECT_EQ(pattern->period(), 1 << 16);
  EXPECT_EQ(pattern->CountBefore(0, (std::int64_t{1} << 60)), std::int64_t{1} << 44);
  EXPECT_OK(MixPattern::Create({std::int64_t{1} << 61, std::int64_t{1} << 60}).status());
}

TEST(DataPlanMixture, EndsWithTheFirstOrTheLastSource) {
  const std::vector<PlanSource> sources = {Source("a", 10), Source("b", 30)};
  const auto counts = [&](MixtureEnd end) {
    const DataPlan plan = Make(
        sources,
        {.epochs = 3, .stages = {{.shares = {{.weight = 1}, {.weight = 1}}, .mixture_end = end}}});
    const Delivery all = Deliver(plan, plan.start(), 1);
    std::vector<std::vector<std::vector<std::int64_t>>> of_epoch;
    for (int e = 0; e < 3; ++e) of_epoch.push_back(CountsOf(plan, all.samples, e));
    return of_epoch;
  };
  // Of the first the small source comes once an epoch, the large one goes on where it was.
  const auto first = counts(MixtureEnd::kFirstExhausted);
  std::vector<std::int64_t> large(30);
  for (int e = 0; e < 3; ++e) {
    EXPECT_EQ(first[static_cast<std::size_t>(e)][0], std::vector<std::int64_t>(10, 1));
    for (std::size_t i = 0; i < 30; ++i) large[i] += first[static_cast<std::size_t>(e)][1][i];
  }
  EXPECT_EQ(large, std::vector<std::int64_t>(30, 1));
  const auto last = counts(MixtureEnd::kLastExhausted);
  for (int e = 0; e < 3; ++e) {
    EXPECT_EQ(last[static_cast<std::size_t>(e)][0], std::vector<std::int64_t>(10, 3));
    EXPECT_EQ(last[static_cast<std::size_t>(e)][1], std::vector<std::int64_t>(30, 1));
  }
}

// However epochs are cut, every source goes through its own epochs.
TEST(DataPlanMixture, LetsEverySourceHaveItsOwnEpochs) {
  RandomPlans random(8);
  for (int round = 0; round < 100; ++round) {
    const std::vector<PlanSource> sources = random.Sources(40);
    DataPlanOptions options = random.Options();
    options.epochs = 6;
    PlanStage later = random.Mixture(sources.size(), 3);
    if (round % 2 == 0) later.mixture_end = MixtureEnd::kLastExhausted;
    options.stages = {random.Mixture(sources.size()), later};
    if (round % 4 == 0) options.stages[0].shares[0].weight = 0;
    if (sources.size() == 1 && round % 4 == 0) continue;
    options.bucketing = {};
    options.packing = {};
    const DataPlan plan = Make(sources, options);
    const Delivery all = Deliver(plan, plan.start(), 1);
    std::vector<std::vector<std::int64_t>> times(sources.size());
    for (std::size_t s = 0; s < sources.size(); ++s) {
      times[s].resize(static_cast<std::size_t>(sources[s].count));
    }
    std::vector<std::int64_t> draws(sources.size());
    for (const PlannedSample& sample : all.samples) {
      const auto s = static_cast<std::size_t>(sample.source);
      const std::int64_t epoch = draws[s]++ / sources[s].count;
      ASSERT_EQ(times[s][static_cast<std::size_t>(sample.id)]++, epoch) << round;
    }
  }
}

TEST(DataPlanMixture, KeepsTheRatioOverEpochsShorterThanThePattern) {
  const DataPlan plan = Make({Source("a", 1000), Source("b", 1000)},
                             {.global_batch_size = 7,
                              .epochs = 1000,
                              .stages = {{.shares = {{.weight = 1}, {.weight = 99}},
                                          .mixture_end = MixtureEnd::kSamples,
                                          .epoch_samples = 10}}});
  const Delivery all = Deliver(plan, plan.start(), 1);
  EXPECT_EQ(all.samples.size(), 10'000u);
  EXPECT_EQ(std::count_if(all.samples.begin(), all.samples.end(),
                          [](const PlannedSample& sample) { return sample.source == 0; }),
            100);
}

TEST(DataPlanMixture, ChangesWithTheCurriculum) {
  const DataPlan plan = Make(
      {Source("easy", 100), Source("hard", 100)},
      {.epochs = 6,
       .stages = {
           {.shares = {{}, {.repeat = 0}}},
           {.first_epoch = 2,
            .shares = {{.weight = 3}, {.weight = 1}},
            .mixture_end = MixtureEnd::kSamples,
            .epoch_samples = 40},
           {.first_epoch = 4, .shares = {{.subset = {.end = 10}}, {.subset = {.begin = 50}}}}}});
  EXPECT_EQ(plan.epoch_size(1), 100);
  EXPECT_EQ(plan.epoch_size(3), 40);
  EXPECT_EQ(plan.epoch_size(5), 60);
  const Delivery all = Deliver(plan, plan.start(), 1);
  EXPECT_EQ(all.samples.size(), 200u + 80 + 120);
  for (const PlannedSample& sample : all.samples) {
    if (sample.epoch < 2) {
      EXPECT_EQ(sample.source, 0);
    }
    if (sample.epoch < 4) continue;
    if (sample.source == 0) {
      EXPECT_LT(sample.id, 10);
    }
    if (sample.source == 1) {
      EXPECT_GE(sample.id, 50);
    }
  }
  EXPECT_EQ(std::accumulate(all.samples.begin() + 200, all.samples.begin() + 280, 0,
                            [](int sum, const PlannedSample& s) { return sum + s.source; }),
            20);
}

TEST(DataPlanMixture, RepeatsInTheDocumentedOrder) {
  const DataPlan plan =
      Make({Source("a", 4)}, {.seed = 1, .stages = {{.shares = {{.repeat = 1.5}}}}});
  std::vector<std::int64_t> ids;
  for (std::int64_t p = 0; p < plan.epoch_size(0); ++p) ids.push_back(plan.At(0, p).id);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{0, 1, 0, 2, 3, 1}));
}

}  // namespace
}  // namespace ait
