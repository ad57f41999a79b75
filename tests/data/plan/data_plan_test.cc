// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/data_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "data/plan/plan_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::CountsOf;
using ::ait::testing::Deliver;
using ::ait::testing::Delivery;
using ::ait::testing::HashOf;
using ::ait::testing::RandomPlans;
using ::ait::testing::Source;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

DataPlan Make(std::vector<PlanSource> sources, DataPlanOptions options) {
  StatusOr<DataPlan> plan = DataPlan::Create(std::move(sources), std::move(options));
  EXPECT_OK(plan.status());
  return *std::move(plan);
}

// The order of one source is that of docs/data.md.
TEST(DataPlan, OfOneSourceHasTheDocumentedOrder) {
  const DataPlan plan = Make({Source("train", 1000)}, {.seed = 1, .epochs = 2});
  const std::vector<std::int64_t> first = {132, 827, 946, 581, 196, 761, 452, 832, 23, 884};
  for (std::int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(plan.At(0, i),
              (PlannedSample{.id = first[static_cast<std::size_t>(i)], .epoch = 0, .position = i}));
  }
  EXPECT_EQ(plan.epoch_size(0), 1000);
  EXPECT_NE(plan.At(1, 0).id, plan.At(0, 0).id);
}

// Rows 1 to 6 of the public bug reports: overlap, loss, ranks that draw the same or have none.
TEST(DataPlan, GivesEverySampleOncePerEpochToRanksThatAreBalanced) {
  RandomPlans random(1);
  for (int round = 0; round < 300; ++round) {
    const std::vector<PlanSource> sources = random.Sources(150);
    const DataPlan plan = Make(sources, random.Options());
    const int world = 1 + static_cast<int>(random.Below(8));
    const Delivery all = Deliver(plan, plan.start(), world);
    std::int64_t position = 0;
    std::int64_t epoch = 0;
    for (const PlannedSample& sample : all.samples) {  // ranks in order are the order
      if (position == plan.epoch_size(epoch)) position = 0, ++epoch;
      ASSERT_EQ(sample.epoch, epoch) << round;
      ASSERT_EQ(sample.position, position++) << round;
      ASSERT_EQ(sample, plan.At(sample.epoch, sample.position));
    }
    ASSERT_EQ(epoch, plan.options().epochs - 1);
    for (std::int64_t e = 0; e < plan.options().epochs; ++e) {
      for (const auto& counts : CountsOf(plan, all.samples, e)) {
        for (const std::int64_t count : counts) ASSERT_EQ(count, 1) << round;
      }
    }
    if (plan.options().packing.window_samples > 0) continue;  // balanced by the batch
    const auto [least, most] = std::minmax_element(all.rows.begin(), all.rows.end());
    EXPECT_LE(*most - *least, 1) << round;
  }
}

// Row 5: more ranks than shards is no problem; row 4: the union over the ranks is the set.
TEST(DataPlan, SplitsOneBlockOverManyRanks) {
  const DataPlan plan = Make({Source("one shard", 64, {0})},
                             {.global_batch_size = 16, .order = SampleOrder::kBlockShuffled});
  const Delivery all = Deliver(plan, plan.start(), 16);
  EXPECT_EQ(all.batches, 4);
  EXPECT_EQ(all.rows, std::vector<std::int64_t>(16, 4));
}

// Rows 8 to 10: resuming at any index, with other ranks and batches, mixtures too.
TEST(DataPlan, ResumesAtEveryIndexWithAnotherWorldAndBatch) {
  RandomPlans random(2);
  for (int round = 0; round < 150; ++round) {
    const std::vector<PlanSource> sources = random.Sources(60);
    DataPlanOptions options = random.Options();
    options.epochs += 1;
    if (options.bucketing.window_samples == 0 && options.packing.window_samples == 0) {
      // A state may be any sample: so may the batch be any size.
      options.epoch_border = EpochBorder::kRunOn;
    }
    if (round % 2 == 0) {
      options.stages = {random.Mixture(sources.size()), random.Mixture(sources.size(), 1)};
    }
    const DataPlan plan = Make(sources, options);
    const Delivery whole = Deliver(plan, plan.start(), 1);
    const std::uint64_t hash = HashOf(whole.samples);
    std::vector<DatasetState> stops = whole.states;
    stops.insert(stops.begin(), plan.start());
    DataPlanOptions other = options;
    other.global_batch_size = 8 + random.Below(20);
    if (other.bucketing.window_samples > 0 && other.bucketing.group_samples == 0) continue;
    const DataPlan after = Make(sources, other);
    ASSERT_EQ(after.digest(), plan.digest());
    std::size_t delivered = 0;
    for (std::size_t stop = 0; stop < stops.size(); ++stop) {
      // What came before the stop, and then another world.
      std::vector<PlannedSample> samples;
      for (const PlannedSample& sample : whole.samples) {
        const DatasetState& at = stops[stop];
        if (sample.epoch < at.epoch || (sample.epoch == at.epoch && sample.position < at.delivered))
          samples.push_back(sample);
      }
      ASSERT_GE(samples.size(), delivered);
      delivered = samples.size();
      const int world = 1 + static_cast<int>(random.Below(8));
      const Delivery rest = Deliver(after, stops[stop], world);
      samples.insert(samples.end(), rest.samples.begin(), rest.samples.end());
      ASSERT_EQ(HashOf(samples), hash) << "round " << round << ", stop " << stop;
    }
  }
}

TEST(DataPlan, ResumesAtEverySampleOfAMixture) {
  const std::vector<PlanSource> sources = {Source("a", 30), Source("b", 7), Source("c", 100)};
  DataPlanOptions options{.global_batch_size = 1, .seed = 4, .epochs = 3};
  options.stages = {{.shares = {{.weight = 3}, {.weight = 2}, {.weight = 5}},
                     .mixture_end = MixtureEnd::kLastExhausted},
                    {.first_epoch = 2, .shares = {{.weight = 1}, {.weight = 0}, {.weight = 1}}}};
  const DataPlan one = Make(sources, options);
  const Delivery whole = Deliver(one, one.start(), 1);
  options.global_batch_size = 12;
  const DataPlan plan = Make(sources, options);
  for (std::size_t stop = 0; stop < whole.states.size(); ++stop) {
    const int world = 1 + static_cast<int>(stop % 12);
    const Delivery rest = Deliver(plan, whole.states[stop], world);
    const std::vector<PlannedSample> expected(
        whole.samples.begin() + static_cast<std::ptrdiff_t>(stop) + 1, whole.samples.end());
    ASSERT_EQ(rest.samples, expected) << stop;
  }
}

// Row 7: the end of an epoch is the start of the next.
TEST(DataPlan, TakesTheEndOfAnEpochForTheStartOfTheNext) {
  const DataPlan plan = Make({Source("train", 10)}, {.global_batch_size = 4, .epochs = 2});
  ASSERT_OK_AND_ASSIGN(const DatasetState state, plan.Normalise({plan.digest(), 0, 10}));
  EXPECT_EQ(state, (DatasetState{plan.digest(), 1, 0}));
  ASSERT_OK_AND_ASSIGN(const DatasetState end, plan.Normalise({plan.digest(), 1, 10}));
  EXPECT_EQ(end, (DatasetState{plan.digest(), 2, 0}));
  PlannedBatch batch;
  ASSERT_OK(plan.NextBatch({plan.digest(), 0, 10}, Shard{}, batch));
  EXPECT_EQ(batch.samples.front(), plan.At(1, 0));
  for (const DatasetState& at : {end, DatasetState{plan.digest(), 1, 10}}) {
    ASSERT_OK(plan.NextBatch(at, Shard{}, batch));
    EXPECT_TRUE(batch.is_end);
    EXPECT_TRUE(batch.samples.empty());
    EXPECT_EQ(batch.after, end);
  }
}

TEST(DataPlan, RunsOnOrStopsWhereAnEpochEnds) {
  const auto batches = [](EpochBorder border, LastBatch last) {
    const DataPlan plan =
        Make({Source("train", 10)},
             {.global_batch_size = 4, .epochs = 3, .epoch_border = border, .last_batch = last});
    std::vector<std::int64_t> sizes;
    PlannedBatch batch;
    DatasetState at = plan.start();
    while (true) {
      EXPECT_OK(plan.NextBatch(at, Shard{}, batch));
      if (batch.is_end) return sizes;
      sizes.push_back(batch.global_samples);
      EXPECT_EQ(batch.samples.size(), last == LastBatch::kPad ? 4u : sizes.back());
      at = batch.after;
    }
  };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(batches(EpochBorder::kRunOn, LastBatch::kShort), (Sizes{4, 4, 4, 4, 4, 4, 4, 2}));
  EXPECT_EQ(batches(EpochBorder::kRunOn, LastBatch::kDrop), (Sizes{4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(batches(EpochBorder::kRunOn, LastBatch::kPad), (Sizes{4, 4, 4, 4, 4, 4, 4, 2}));
  EXPECT_EQ(batches(EpochBorder::kStop, LastBatch::kShort), (Sizes{4, 4, 2, 4, 4, 2, 4, 4, 2}));
  EXPECT_EQ(batches(EpochBorder::kStop, LastBatch::kDrop), (Sizes{4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(batches(EpochBorder::kStop, LastBatch::kPad), (Sizes{4, 4, 2, 4, 4, 2, 4, 4, 2}));
}

// Row 6: padding is marked, and no sample counts twice.
TEST(DataPlan, MarksPadding) {
  for (const int world : {1, 3, 8}) {
    const DataPlan plan = Make({Source("train", 8)}, {.global_batch_size = 24,
                                                      .epochs = 2,
                                                      .epoch_border = EpochBorder::kStop,
                                                      .last_batch = LastBatch::kPad});
    const Delivery all = Deliver(plan, plan.start(), world);
    EXPECT_EQ(all.batches, 2);
    EXPECT_EQ(all.padding, 32);
    EXPECT_EQ(all.rows, std::vector<std::int64_t>(static_cast<std::size_t>(world), 48 / world));
    ASSERT_EQ(all.samples.size(), 16u);
    PlannedBatch batch;
    ASSERT_OK(plan.NextBatch(plan.start(), Shard{}, batch));
    for (std::size_t i = 0; i < 24; ++i) {
      EXPECT_EQ(batch.samples[i].is_padding, i >= 8);
      EXPECT_EQ(batch.samples[i].id, batch.samples[i % 8].id);
      EXPECT_EQ(batch.samples[i].position, static_cast<std::int64_t>(i % 8));
    }
  }
}

TEST(DataPlan, KeepsRanksBalancedOverEpochsThatStop) {
  for (const LastBatch last : {LastBatch::kShort, LastBatch::kDrop, LastBatch::kPad}) {
    const DataPlan plan = Make({Source("train", 103)}, {.global_batch_size = 10,
                                                        .epochs = 50,
                                                        .epoch_border = EpochBorder::kStop,
                                                        .last_batch = last});
    const Delivery all = Deliver(plan, plan.start(), 7);
    const auto [least, most] = std::minmax_element(all.rows.begin(), all.rows.end());
    EXPECT_LE(*most - *least, 1);
  }
}

TEST(DataPlan, RepeatsAndTakesPartsOfSources) {
  const DataPlan plan =
      Make({Source("twice and a half", 10), Source("a tenth", 50), Source("none", 5),
            Source("every third", 20), Source("listed", 20)},
           {.global_batch_size = 8,
            .epochs = 20,
            .stages = {{.shares = {{.repeat = 2.5},
                                   {.repeat = 0.1},
                                   {.repeat = 0},
                                   {.subset = {.begin = 1, .end = 12, .stride = 3}},
                                   {.subset = {.ids = {2, 3, 19}}}}}}});
  EXPECT_EQ(plan.epoch_size(0), 25 + 5 + 0 + 4 + 3);
  const Delivery all = Deliver(plan, plan.start(), 3);
  std::vector<std::int64_t> total(50);
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto counts = CountsOf(plan, all.samples, epoch);
    std::int64_t three_times = 0;
    for (const std::int64_t count : counts[0]) {
      EXPECT_TRUE(count == 2 || count == 3);
      if (count == 3) ++three_times;
    }
    EXPECT_EQ(three_times, 5);
    for (std::size_t i = 0; i < 50; ++i) total[i] += counts[1][i];
    EXPECT_EQ(counts[2], std::vector<std::int64_t>(5, 0));
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(counts[3][i], i % 3 == 1 && i < 12 ? 1 : 0);
      EXPECT_EQ(counts[4][i], i == 2 || i == 3 || i == 19 ? 1 : 0);
    }
    if (epoch % 10 == 9) {
      EXPECT_EQ(total, std::vector<std::int64_t>(50, (epoch + 1) / 10));
    }
  }
}

TEST(DataPlan, OfABillionSamplesIsAFunction) {
  const DataPlan plan =
      Make({Source("large", 1'000'000'007)},
           {.global_batch_size = 1024, .seed = 0xfeedfacecafebeef, .epochs = kUnlimitedEpochs});
  EXPECT_EQ(plan.At(3, 0).id, 815229262);
  EXPECT_EQ(plan.At(3, 9).id, 726044097);
  PlannedBatch batch;
  ASSERT_OK(plan.NextBatch({plan.digest(), 3, 1'000'000'000}, Shard{}, batch));
  EXPECT_EQ(batch.samples.size(), 1024u);
  EXPECT_EQ(batch.after, (DatasetState{plan.digest(), 4, 1017}));
  ASSERT_OK(plan.NextBatch({plan.digest(), 4'000'000'000, 5}, Shard{}, batch));
  EXPECT_EQ(batch.after, (DatasetState{plan.digest(), 4'000'000'000, 1029}));
}

TEST(DataPlan, RefusesStatesAndShardsThatDoNotFit) {
  const DataPlan plan = Make({Source("train", 10)}, {.global_batch_size = 4, .epochs = 2});
  PlannedBatch batch;
  EXPECT_THAT(plan.NextBatch({plan.digest() + 1, 0, 0}, Shard{}, batch),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another plan")));
  for (const auto& [epoch, delivered] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {-1, 0}, {0, -1}, {0, 11}, {2, 1}, {3, 0}, {INT64_MAX, INT64_MAX}}) {
    EXPECT_THAT(plan.NextBatch({plan.digest(), epoch, delivered}, Shard{}, batch),
                StatusIs(StatusCode::kOutOfRange));
  }
  const auto of_rank = [&](int rank, int size) {
    return plan.NextBatch(plan.start(), {.rank = Rank(rank), .size = WorldSize(size)}, batch);
  };
  EXPECT_THAT(of_rank(2, 2), StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 2")));
  EXPECT_THAT(of_rank(-1, 2), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(of_rank(0, 5), StatusIs(StatusCode::kInvalidArgument, HasSubstr("world size 5")));
  EXPECT_OK(of_rank(3, 4));
}

// What changes the order changes the digest; what does not, does not.
TEST(DataPlan, HasADigestOfItsOrder) {
  const std::vector<PlanSource> sources = {Source("a", 40, {0, 20}), Source("b", 50)};
  const DataPlanOptions base{.global_batch_size = 8, .seed = 1};
  const auto digest = [&](auto change, std::vector<PlanSource> of = {}) {
    DataPlanOptions options = base;
    change(options);
    return Make(of.empty() ? sources : of, options).digest();
  };
  const std::uint64_t same = digest([](DataPlanOptions&) {});
  EXPECT_EQ(digest([](DataPlanOptions& o) { o.global_batch_size = 9; }), same);
  EXPECT_EQ(digest([](DataPlanOptions& o) { o.epochs = 9; }), same);
  EXPECT_EQ(digest([](DataPlanOptions& o) { o.last_batch = LastBatch::kPad; }), same);
  EXPECT_EQ(digest([](DataPlanOptions& o) { o.window_blocks = 3; }), same);
  EXPECT_EQ(digest([](DataPlanOptions& o) { o.stages = {{}}; }), same);
  std::set<std::uint64_t> others = {same};
  const auto expect_other = [&](auto change, std::vector<PlanSource> of = {}) {
    EXPECT_TRUE(others.insert(digest(change, of)).second) << others.size();
  };
  const auto none = [](DataPlanOptions&) {};
  expect_other([](DataPlanOptions& o) { o.seed = 2; });
  expect_other([](DataPlanOptions& o) { o.order = SampleOrder::kSequential; });
  expect_other([](DataPlanOptions& o) { o.order = SampleOrder::kBlockShuffled; });
  expect_other([](DataPlanOptions& o) {
    o.order = SampleOrder::kBlockShuffled;
    o.window_blocks = 3;
  });
  expect_other([](DataPlanOptions& o) { o.stages = {{.shares = {{.weight = 1}, {.weight = 1}}}}; });
  expect_other([](DataPlanOptions& o) { o.stages = {{.shares = {{.weight = 1}, {.weight = 2}}}}; });
  expect_other([](DataPlanOptions& o) { o.stages = {{.shares = {{.repeat = 2}, {}}}}; });
  expect_other([](DataPlanOptions& o) { o.stages = {{.shares = {{.subset = {.begin = 1}}, {}}}}; });
  expect_other([](DataPlanOptions& o) { o.stages = {{.shares = {{.subset = {.end = 39}}, {}}}}; });
  expect_other(none, {sources[1], sources[0]});
  expect_other(none, {sources[0]});
  expect_other(none, {Source("c", 40), sources[1]});
  // The same samples in other blocks: only a shuffle by blocks has another order.
  const std::vector<PlanSource> other_blocks = {Source("a", 40, {0, 21}), sources[1]};
  EXPECT_EQ(digest(none, other_blocks), same);
  expect_other([](DataPlanOptions& o) { o.order = SampleOrder::kBlockShuffled; }, other_blocks);
}

// States outlive programs: the digest never changes. By testdata/plan_orders.py.
TEST(DataPlan, HasTheDocumentedDigest) {
  const PlanSource one = {.name = "one", .count = 1000, .digest = 0x1234};
  const PlanSource two = {.name = "two", .count = 60, .digest = 0x5678};
  PlanSource blocks = one;
  blocks.block_begins = {0, 500};
  PlanSource lengths = one;
  lengths.lengths = {.of = [](std::int64_t) { return 1; }, .digest = 9};
  const auto digest = [](std::vector<PlanSource> sources, DataPlanOptions options) {
    options.seed = 1;
    options.epochs = 9;
    return Make(std::move(sources), options).digest();
  };
  EXPECT_EQ(digest({one}, {}), 0x8bd64c6616bdf508u);
  EXPECT_EQ(digest({one}, {.order = SampleOrder::kSequential}), 0xac054985e5a1c713u);
  EXPECT_EQ(digest({blocks}, {.order = SampleOrder::kBlockShuffled}), 0x92b78c70627796c0u);
  EXPECT_EQ(
      digest({one, two}, {.stages = {{.shares = {{.weight = 7}, {.weight = 3}}},
                                     {.first_epoch = 5,
                                      .shares = {{.subset = {.begin = 1, .end = 100, .stride = 3}},
                                                 {.repeat = 1.5, .subset = {.ids = {4, 9}}}}}}}),
      0xe3919f0d6b038493u);
  EXPECT_EQ(digest({lengths}, {.bucketing = {.window_samples = 100, .group_samples = 10}}),
            0xbe575785d87b6096u);
  EXPECT_EQ(digest({lengths}, {.packing = {.window_samples = 100, .row_budget = 2048}}),
            0x2d0eccb0873a155bu);
}

TEST(DataPlan, AListOfTwoIsNoRange) {
  const auto digest = [](Subset subset) {
    PlanStage stage;
    stage.shares = {{.subset = std::move(subset)}};
    return Make({Source("a", 40)}, {.stages = {stage}}).digest();
  };
  EXPECT_NE(digest({.ids = {4, 9}}), digest({.begin = 4, .end = 22, .stride = 9}));
}

TEST(DataPlan, SaysWhatTakesPartForThoseWhoReplaceSamples) {
  PlanStage stage;
  stage.shares = {{.subset = {.begin = 3, .end = 30, .stride = 3}}, {.repeat = 0}};
  const DataPlan plan = Make({Source("a", 40), Source("b", 9)}, {.stages = {stage}});
  EXPECT_EQ(plan.taken_count(0, 0), 9);
  EXPECT_EQ(plan.taken_id(0, 0, 8), 27);
  EXPECT_EQ(plan.taken_count(1, 0), std::nullopt);
  EXPECT_EQ(plan.length(0, 1), std::nullopt);
  EXPECT_EQ(plan.source_digest(0), plan.sources()[0].digest);
  EXPECT_EQ(plan.source_digest(2), std::nullopt);
}

// At any time, from any thread.
TEST(DataPlan, IsTheSameFromManyThreads) {
  RandomPlans random(12);
  for (int round = 0; round < 10; ++round) {
    const std::vector<PlanSource> sources = random.Sources(200);
    const DataPlan plan = Make(sources, random.Options());
    const Delivery once = Deliver(plan, plan.start(), 2);
    const DataPlan fresh = Make(sources, plan.options());
    std::vector<std::uint64_t> hashes(4);
    std::vector<std::jthread> threads;
    for (std::uint64_t& hash : hashes) {
      threads.emplace_back([&] { hash = HashOf(Deliver(fresh, fresh.start(), 3).samples); });
    }
    threads.clear();
    for (const std::uint64_t hash : hashes) EXPECT_EQ(hash, HashOf(once.samples));
  }
}

TEST(DataPlan, SaysHowFarEverySourceIs) {
  const DataPlan plan = Make({Source("a", 10), Source("b", 20)},
                             {.global_batch_size = 4, .order = SampleOrder::kSequential});
  ASSERT_OK_AND_ASSIGN(const auto progress, plan.Progress({plan.digest(), 0, 13}));
  EXPECT_EQ(ToJson(progress), R"([{"epoch":0,"name":"a","size":10,"taken":10},)"
                              R"({"epoch":0,"name":"b","size":20,"taken":3}])");
  const DataPlan shuffled = Make({Source("a", 10), Source("b", 20)}, {.global_batch_size = 4});
  ASSERT_OK_AND_ASSIGN(const auto unknown, shuffled.Progress({shuffled.digest(), 0, 13}));
  EXPECT_EQ(ToJson(unknown), R"([{"epoch":0,"name":"a","size":10,"taken":null},)"
                             R"({"epoch":0,"name":"b","size":20,"taken":null}])");
}

// What Progress says is what was delivered.
TEST(DataPlan, CountsTheProgressOfMixturesExactly) {
  RandomPlans random(3);
  for (int round = 0; round < 100; ++round) {
    const std::vector<PlanSource> sources = random.Sources(40);
    DataPlanOptions options = random.Options();
    options.epochs = 4;
    const bool is_mixture = round % 3 != 0;
    if (is_mixture) {
      options.stages = {random.Mixture(sources.size()), random.Mixture(sources.size(), 2)};
    }
    const DataPlan plan = Make(sources, options);
    const Delivery whole = Deliver(plan, plan.start(), 1);
    for (const DatasetState& state : whole.states) {
      ASSERT_OK_AND_ASSIGN(const auto progress, plan.Progress(state));
      std::vector<std::int64_t> taken(sources.size());
      for (const PlannedSample& sample : whole.samples) {
        const bool is_before = sample.epoch < state.epoch ||
                               (sample.epoch == state.epoch && sample.position < state.delivered);
        if (is_before && (is_mixture || sample.epoch == state.epoch)) {
          ++taken[static_cast<std::size_t>(sample.source)];
        }
      }
      for (std::size_t s = 0; s < sources.size(); ++s) {
        if (!progress[s].taken) continue;
        EXPECT_EQ(*progress[s].taken + (is_mixture ? progress[s].epoch * sources[s].count : 0),
                  taken[s])
            << "round " << round << ", source " << s << ", " << ToJson(state);
      }
    }
  }
}

}  // namespace
}  // namespace ait
