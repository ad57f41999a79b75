// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_PLAN_PLAN_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_PLAN_PLAN_TEST_SUPPORT_H_

// Plans at random, and what all ranks together get from them.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ait/data/plan/data_plan.h"
#include "data/mix_internal.h"
#include "support/status_matchers.h"

namespace ait::testing {

inline PlanSource Source(std::string name, std::int64_t count,
                         std::vector<std::int64_t> block_begins = {}) {
  return {.name = name,
          .count = count,
          .digest = std::hash<std::string>()(name),
          .block_begins = std::move(block_begins)};
}

inline PlanSource WithLengths(PlanSource source, std::uint64_t seed, std::int64_t longest) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < source.count; ++i) {
    const std::uint64_t random = internal::Mix(seed + static_cast<std::uint64_t>(i));
    lengths.push_back(static_cast<std::int32_t>(random % static_cast<std::uint64_t>(longest + 1)));
  }
  source.lengths = MakeSampleLengths(std::move(lengths));
  return source;
}

/// What all ranks got in one walk.
struct Delivery {
  std::vector<PlannedSample> samples;  // rank by rank within a batch; without padding
  std::vector<std::int64_t> rows;      // of each rank, padding too
  std::vector<DatasetState> states;    // after each batch
  std::int64_t padding = 0;
  std::int64_t batches = 0;
};

/// Delivers batches from `from` to all of `world` ranks, at most `most` of them.
inline Delivery Deliver(const BatchPlan& plan, DatasetState from, int world,
                        std::int64_t most = INT64_MAX) {
  Delivery all{.rows = std::vector<std::int64_t>(static_cast<std::size_t>(world))};
  PlannedBatch batch;
  for (; all.batches < most; ++all.batches) {
    std::int64_t real = 0;
    DatasetState after;
    bool is_end = false;
    for (int rank = 0; rank < world; ++rank) {
      const Status status =
          plan.NextBatch(from, {.rank = Rank(rank), .size = WorldSize(world)}, batch);
      EXPECT_TRUE(status.ok()) << status.ToString();
      if (!status.ok()) return all;
      if (rank == 0) after = batch.after;
      EXPECT_EQ(batch.after, after);
      is_end = batch.is_end;
      for (const PlannedSample& sample : batch.samples) {
        if (sample.is_padding) ++all.padding;
        if (!sample.is_padding) all.samples.push_back(sample), ++real;
      }
      all.rows[static_cast<std::size_t>(rank)] += static_cast<std::int64_t>(
          batch.row_begins.empty() ? batch.samples.size() : batch.row_begins.size() - 1);
    }
    if (is_end) break;
    EXPECT_EQ(batch.global_samples, real);
    from = after;
    all.states.push_back(after);
  }
  return all;
}

/// Counts how often each sample of each source came in an epoch.
inline std::vector<std::vector<std::int64_t>> CountsOf(const DataPlan& plan,
                                                       const std::vector<PlannedSample>& samples,
                                                       std::int64_t epoch) {
  std::vector<std::vector<std::int64_t>> counts;
  for (const PlanSource& source : plan.sources()) {
    counts.emplace_back(static_cast<std::size_t>(source.count));
  }
  for (const PlannedSample& sample : samples) {
    if (sample.epoch == epoch) {
      ++counts[static_cast<std::size_t>(sample.source)][static_cast<std::size_t>(sample.id)];
    }
  }
  return counts;
}

/// A hash of what was delivered, in the order of delivery.
inline std::uint64_t HashOf(const std::vector<PlannedSample>& samples) {
  std::uint64_t hash = 0;
  for (const PlannedSample& sample : samples) {
    for (const std::int64_t word : {std::int64_t{sample.source}, sample.id, sample.epoch}) {
      hash = internal::Fold(hash, static_cast<std::uint64_t>(word));
    }
  }
  return hash;
}

/// Options and sources at random, small enough to be walked through.
class RandomPlans {
 public:
  explicit RandomPlans(std::uint64_t seed) : random_(seed) {}

  std::int64_t Below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(bound));
  }

  std::vector<PlanSource> Sources(std::int64_t most_samples) {
    std::vector<PlanSource> sources;
    const std::int64_t count = 1 + Below(4);
    for (std::int64_t s = 0; s < count; ++s) {
      const std::int64_t samples = 1 + Below(most_samples);
      std::vector<std::int64_t> begins;
      for (std::int64_t b = 0; b < samples; b += 1 + Below(20)) begins.push_back(b);
      if (Below(4) == 0) begins.clear();
      sources.push_back(WithLengths(Source(StrCat("source ", s), samples, begins), random_(), 60));
    }
    return sources;
  }

  /// Without weights: every sample once an epoch.
  DataPlanOptions Options() {
    DataPlanOptions options{
        .global_batch_size = 8 + Below(30),
        .seed = random_(),
        .order = std::vector{SampleOrder::kShuffled, SampleOrder::kBlockShuffled,
                             SampleOrder::kSequential}[static_cast<std::size_t>(Below(3))],
        .window_blocks = 1 + Below(5),
        .epochs = 1 + Below(4),
        .epoch_border = Below(2) == 0 ? EpochBorder::kRunOn : EpochBorder::kStop};
    const std::int64_t windows = Below(4);
    if (windows == 0) {
      options.bucketing = {.window_samples = 20 + Below(50), .group_samples = 1 + Below(15)};
    }
    if (windows == 1) options.packing = {.window_samples = 1 + Below(60), .row_budget = 64};
    return options;
  }

  /// One stage that mixes all sources.
  PlanStage Mixture(std::size_t sources, std::int64_t first_epoch = 0) {
    PlanStage stage{.first_epoch = first_epoch,
                    .mixture_end = MixtureEnd::kSamples,
                    .epoch_samples = 10 + Below(200)};
    for (std::size_t s = 0; s < sources; ++s) stage.shares.push_back({.weight = 1 + Below(9)});
    return stage;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_PLAN_PLAN_TEST_SUPPORT_H_
