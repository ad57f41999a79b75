// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ait/data/plan/data_plan.h"
#include "data/plan/plan_test_support.h"
#include "data/plan/regroup_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Deliver;
using ::ait::testing::Delivery;
using ::ait::testing::Source;
using ::ait::testing::StatusIs;
using ::ait::testing::WithLengths;
using ::testing::HasSubstr;
using Places = std::vector<std::int32_t>;

std::vector<std::int64_t> VectorLengths(std::int64_t count) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) lengths.push_back(i * 7 % 11);
  return lengths;
}

DataPlan Make(std::vector<PlanSource> sources, DataPlanOptions options) {
  StatusOr<DataPlan> plan = DataPlan::Create(std::move(sources), std::move(options));
  EXPECT_OK(plan.status());
  return *std::move(plan);
}

// The vectors of docs/resuming.md, by testdata/plan_orders.py.
TEST(DataPlanWindows, GiveTheDocumentedVectors) {
  const auto lengths = VectorLengths(12);
  EXPECT_EQ(internal::BucketWindow(lengths, 5, 1, {}).places,
            (Places{8, 5, 2, 10, 7, 4, 1, 9, 6, 3, 0, 11}));
  const internal::Regrouped packed = internal::PackWindow(lengths, 12, 1, {});
  EXPECT_EQ(packed.places, (Places{1, 7, 2, 6, 0, 3, 5, 11, 9, 10, 4, 8}));
  EXPECT_EQ(packed.row_begins, (Places{0, 2, 4, 8, 10, 12}));
  PlanSource source = Source("a", 24);
  source.lengths = {.of = [](std::int64_t id) { return id * 7 % 11; }, .digest = 1};
  const DataPlan plan =
      Make({source}, {.seed = 1, .packing = {.window_samples = 12, .row_budget = 12}});
  const std::vector<std::int64_t> second = {22, 11, 5, 14, 17, 2, 16, 3, 10, 9, 1, 18};
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(plan.At(0, 12 + i).id, second[static_cast<std::size_t>(i)]);
  }
}

TEST(DataPlanWindows, WhatIsDroppedIsNotAlwaysTheLongest) {
  PlanSource source = Source("texts", 47);
  source.lengths = {.of = [](std::int64_t id) { return id; }, .digest = 1};
  const DataPlan plan = Make({source}, {.global_batch_size = 10,
                                        .epochs = 40,
                                        .epoch_border = EpochBorder::kStop,
                                        .last_batch = LastBatch::kDrop,
                                        .bucketing = {.window_samples = 47}});
  std::vector<int> times(47);
  PlannedBatch batch;
  for (DatasetState at = plan.start();; at = batch.after) {
    ASSERT_OK(plan.NextBatch(at, Shard{}, batch));
    if (batch.is_end) break;
    std::int64_t longest = 0;
    std::int64_t shortest = 47;
    for (const PlannedSample& s : batch.samples) {
      ++times[static_cast<std::size_t>(s.id)];
      longest = std::max(longest, s.id);
      shortest = std::min(shortest, s.id);
    }
    EXPECT_EQ(longest - shortest, 9) << "as many of like length as a batch has";
  }
  for (const int n : times) {
    EXPECT_GT(n, 20);
  }
}

TEST(DataPlanWindows, BringLikeLengthsTogether) {
  const PlanSource source = WithLengths(Source("texts", 5000), 1, 1000);
  const auto padded = [&](Bucketing bucketing) {
    const DataPlan plan = Make({source}, {.global_batch_size = 50, .bucketing = bucketing});
    PlannedBatch batch;
    DatasetState at = plan.start();
    std::int64_t waste = 0;
    while (true) {
      EXPECT_OK(plan.NextBatch(at, Shard{}, batch));
      if (batch.is_end) return waste;
      std::int64_t longest = 0;
      for (const PlannedSample& s : batch.samples)
        longest = std::max(longest, source.lengths.of(s.id));
      for (const PlannedSample& s : batch.samples) waste += longest - source.lengths.of(s.id);
      at = batch.after;
    }
  };
  EXPECT_LT(20 * padded({.window_samples = 5000}), padded({}));
  EXPECT_LT(4 * padded({.window_samples = 500}), padded({}));
}

TEST(DataPlanWindows, PackRowsUpToTheBudget) {
  const PlanSource source = WithLengths(Source("texts", 3000), 2, 300);
  const DataPlan plan = Make({source}, {.global_batch_size = 16,
                                        .epochs = 2,
                                        .packing = {.window_samples = 500, .row_budget = 1000}});
  for (const int world : {1, 5}) {
    DatasetState at = plan.start();
    PlannedBatch batch;
    std::int64_t rows = 0;
    std::int64_t used = 0;
    while (true) {
      std::int64_t in_batch = 0;
      for (int rank = 0; rank < world; ++rank) {
        ASSERT_OK(plan.NextBatch(at, {.rank = Rank(rank), .size = WorldSize(world)}, batch));
        if (batch.is_end) break;
        const auto& begins = batch.row_begins;
        ASSERT_GE(begins.size(), 1u);
        ASSERT_EQ(begins.front(), 0);
        ASSERT_EQ(begins.back(), static_cast<std::int64_t>(batch.samples.size()));
        for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
          std::int64_t length = 0;
          for (std::int64_t i = begins[r]; i < begins[r + 1]; ++i) {
            length += source.lengths.of(batch.samples[static_cast<std::size_t>(i)].id);
          }
          ASSERT_GT(begins[r + 1], begins[r]);
          ASSERT_LE(length, 1000);
          used += length;
        }
        in_batch += static_cast<std::int64_t>(begins.size()) - 1;
      }
      if (batch.is_end) break;
      rows += in_batch;
      at = batch.after;
      ASSERT_TRUE(in_batch == 16 || at.epoch == 2);
    }
    EXPECT_GT(static_cast<double>(used) / static_cast<double>(rows * 1000), 0.98);
  }
}

TEST(DataPlanWindows, GiveWhatIsTooLongARowOfItsOwn) {
  PlanSource source = Source("texts", 6);
  source.lengths = MakeSampleLengths({5, 50, 5, 50, 0, 5});
  const DataPlan plan =
      Make({source}, {.global_batch_size = 8, .packing = {.window_samples = 6, .row_budget = 10}});
  PlannedBatch batch;
  ASSERT_OK(plan.NextBatch(plan.start(), Shard{}, batch));
  EXPECT_EQ(batch.row_begins.size(), 5u);
  EXPECT_EQ(batch.samples.size(), 6u);
  EXPECT_EQ(batch.global_samples, 6);
}

TEST(DataPlanWindows, ResumeBetweenRowsOnly) {
  PlanSource source = WithLengths(Source("texts", 100), 2, 30);
  const DataPlan plan = Make(
      {source}, {.global_batch_size = 4, .packing = {.window_samples = 40, .row_budget = 100}});
  const Delivery all = Deliver(plan, plan.start(), 1);
  PlannedBatch batch;
  std::int64_t borders = 0;
  for (std::int64_t delivered = 0; delivered <= 100; ++delivered) {
    const Status status = plan.NextBatch({plan.digest(), 0, delivered}, Shard{}, batch);
    if (status.ok()) {
      ++borders;
    } else {
      EXPECT_THAT(status, StatusIs(StatusCode::kOutOfRange, HasSubstr("within a packed row")));
    }
  }
  EXPECT_GE(borders, all.batches);
  EXPECT_LT(borders, 60);
}

TEST(DataPlanWindows, EndEpochsOfPackedRows) {
  const PlanSource source = WithLengths(Source("texts", 103), 2, 30);
  for (const LastBatch last : {LastBatch::kShort, LastBatch::kPad, LastBatch::kDrop}) {
    for (const EpochBorder border : {EpochBorder::kStop, EpochBorder::kRunOn}) {
      const DataPlan plan = Make({source}, {.global_batch_size = 9,
                                            .epochs = 3,
                                            .epoch_border = border,
                                            .last_batch = last,
                                            .packing = {.window_samples = 40, .row_budget = 64}});
      const Delivery all = Deliver(plan, plan.start(), 4);
      std::int64_t rows = 0;
      for (const std::int64_t of_rank : all.rows) rows += of_rank;
      if (last != LastBatch::kShort) {
        EXPECT_EQ(rows, all.batches * 9);
      }
      if (last != LastBatch::kDrop) {
        EXPECT_EQ(all.samples.size(), 309u);
      }
      if (last == LastBatch::kDrop) {
        EXPECT_LT(all.samples.size(), 309u);
      }
      EXPECT_EQ(all.padding > 0, last == LastBatch::kPad);
    }
  }
  // An epoch that never fills a batch is an error, not an endless search.
  const DataPlan plan = Make({source}, {.global_batch_size = 1000,
                                        .epochs = kUnlimitedEpochs,
                                        .epoch_border = EpochBorder::kStop,
                                        .last_batch = LastBatch::kDrop,
                                        .packing = {.window_samples = 40, .row_budget = 64}});
  PlannedBatch batch;
  EXPECT_THAT(plan.NextBatch(plan.start(), Shard{}, batch),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("less than a batch")));
}

}  // namespace
}  // namespace ait
