// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_PLAN_OPTIONS_H_
#define AIT_DATA_PLAN_PLAN_OPTIONS_H_

// What a `DataPlan` is made of: sources, shares of them, and how they are ordered and batched.
//
// All sources once per epoch, shuffled together:
//
//   DataPlanOptions options{.global_batch_size = 256, .seed = 1, .epochs = 10};
//
// Seven samples of the first source to three of the second, an epoch ending when one of them has
// been read once; from epoch 5 on half and half:
//
//   options.stages = {{.shares = {{.weight = 7}, {.weight = 3}}},
//                     {.first_epoch = 5, .shares = {{.weight = 1}, {.weight = 1}}}};
//
// docs/resuming.md specifies the orders to the bit.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ait/data/order.h"
#include "ait/data/sample_source.h"

namespace ait::inline v0 {

/// How long the samples of a source are, in the unit of the budget (tokens, bytes, pixels).
struct SampleLengths {
  /// Length of sample `id`, ≥ 0; always the same. Called from any thread. Empty: unknown.
  std::function<std::int64_t(std::int64_t id)> of;
  std::uint64_t digest = 0;  // equal for the same lengths
};

/// Lengths that are kept in memory, four bytes a sample.
SampleLengths MakeSampleLengths(std::vector<std::int32_t> lengths);

/// What a plan knows of a source.
struct PlanSource {
  std::string name;          // for messages
  std::int64_t count = 0;    // of its samples, ≥ 1
  std::uint64_t digest = 0;  // equal for the same samples in the same order
  /// First sample of every block, ascending from 0; empty: one block.
  std::vector<std::int64_t> block_begins;
  SampleLengths lengths;  // for bucketing and packing
};

/// Name, count, digest and blocks of `source`, without lengths.
PlanSource MakePlanSource(const SampleSource& source);

/// Begins of blocks of `block_samples` each, ≥ 1; the last may be shorter.
std::vector<std::int64_t> UniformBlocks(std::int64_t count, std::int64_t block_samples);

/// A part of a source: samples begin, begin + stride, … before `end`, or those listed.
struct Subset {
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();  // at most; or the end of the source
  std::int64_t stride = 1;                                      // ≥ 1
  std::vector<std::int64_t> ids;  // if not empty: these, ascending; the others at their defaults
};

/// What part of an epoch a source has.
struct SourceShare {
  /// Parts of the mixture, such as 7 of 7 and 3; 0: not in it. If all shares of a stage have
  /// weight 0, the stage is no mixture: an epoch has each of the samples `repeat` times.
  std::int64_t weight = 0;
  /// Times per epoch, outside of a mixture: 2.5 is twice, and half of the samples once more,
  /// another half in the next epoch; 0.1 is a tenth, the next tenth in the next epoch; 0 is none.
  double repeat = 1;
  Subset subset;
};

/// When an epoch of a mixture ends. A source that runs out before begins its own next epoch, in a
/// new order; no source starts over because an epoch of the mixture ends.
enum class MixtureEnd {
  kFirstExhausted,  // before a source would come to its second pass: no sample comes twice
  kLastExhausted,   // when every source has been passed through at least once
  kSamples,         // after `PlanStage::epoch_samples`
};

/// What holds from one epoch on, until the next stage: a curriculum is several of them.
struct PlanStage {
  std::int64_t first_epoch = 0;     // ascending; of the first stage 0
  std::vector<SourceShare> shares;  // one for each source; empty: all of each source, once
  MixtureEnd mixture_end = MixtureEnd::kFirstExhausted;
  std::int64_t epoch_samples = 0;  // of kSamples
};

/// What a batch does where an epoch ends.
enum class EpochBorder {
  kRunOn,  // it goes on with the next epoch; only the end of the last epoch is an end
  kStop,   // it ends; the next batch begins with the next epoch
};

/// Brings samples of like length together: within windows of `window_samples` of the order, sorted
/// by length, cut into groups of `group_samples`, and the groups shuffled.
struct Bucketing {
  std::int64_t window_samples = 0;  // 0: no bucketing; else ≥ group_samples, ≤ 2^24
  /// Samples of like length in a row; 0: the global batch size. Part of the order: a run that is to
  /// be resumed with another batch size states it.
  std::int64_t group_samples = 0;
};

/// Puts several samples into one row, up to a budget: within windows of `window_samples` of the
/// order, the longest first, each into the fullest row that has room for it; the rows shuffled.
/// Batches then count rows. A sample longer than the budget has a row of its own.
struct Packing {
  std::int64_t window_samples = 0;  // 0: no packing; ≤ 2^24. 1,000 wastes little and costs little
  std::int64_t row_budget = 0;      // ≥ 1, in the unit of SampleLengths
};

struct DataPlanOptions {
  std::int64_t global_batch_size = 1;  // rows of one batch on all ranks together, ≥ world size
  std::uint64_t seed = 0;              // of the order; the same on all ranks
  SampleOrder order = SampleOrder::kShuffled;
  std::int64_t window_blocks = 16;  // of kBlockShuffled: blocks that are open at a time, ≥ 1
  std::int64_t epochs = 1;          // ≥ 1, or kUnlimitedEpochs
  EpochBorder epoch_border = EpochBorder::kRunOn;
  LastBatch last_batch = LastBatch::kShort;  // at each end that `epoch_border` makes
  std::vector<PlanStage> stages;             // empty: one, with all of each source once
  Bucketing bucketing;
  Packing packing;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_PLAN_OPTIONS_H_
