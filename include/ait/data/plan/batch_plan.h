// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_BATCH_PLAN_H_
#define AIT_DATA_PLAN_BATCH_PLAN_H_

// Which rank reads which sample when: the interface between a plan and the loader that carries it
// out.
//
// A plan is a pure function of a position: nothing of it depends on threads, on what was read
// before, or on which rank asks. `DataPlan` ("data_plan.h") is the plan of ait; a program may bring
// its own.
//
//   PlannedBatch batch;
//   DatasetState at{.plan_digest = plan.digest()};
//   while (true) {
//     AIT_RETURN_IF_ERROR(plan.NextBatch(at, shard, batch));
//     if (batch.is_end) break;
//     for (const PlannedSample& sample : batch.samples) Read(sample.source, sample.id);
//     at = batch.after;
//   }

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/shard.h"
#include "ait/base/status.h"
#include "ait/data/dataset_state.h"

namespace ait::inline v0 {

/// One sample of a batch.
struct PlannedSample {
  std::int32_t source = 0;  // which of the sources the plan was made of
  std::int64_t id = 0;      // its number in that source
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // in the order of that epoch, over all sources and ranks
  /// Fills up a batch so that all ranks have as many: it was delivered elsewhere in this epoch, and
  /// must not be counted again.
  bool is_padding = false;

  bool operator==(const PlannedSample&) const = default;
};

/// The part of one rank of a batch.
struct PlannedBatch {
  std::vector<PlannedSample> samples;
  /// With sequence packing: row r of the batch is made of the samples from row_begins[r] to before
  /// row_begins[r + 1]. Empty: every sample is a row.
  std::vector<std::int64_t> row_begins;
  std::int64_t global_samples = 0;  // of all ranks together, padding left out
  DatasetState after;               // the position once this batch is delivered; equal on all ranks
  bool is_end = false;              // there is no batch: the data has ended
};

/// **Thread-safety.** Immutable.
class BatchPlan {
 public:
  virtual ~BatchPlan() = default;

  /// Equal for plans that give the same samples in the same order.
  virtual std::uint64_t digest() const = 0;
  /// What all ranks must have in common, a line each such as "seed: 1", for messages that say how
  /// plans differ; see "plan_agreement.h". What comes after a tab is shown and not compared, such as
  /// the path of a source.
  virtual std::vector<std::string> Facts() const { return {}; }
  /// Number of samples of an epoch, over all ranks.
  virtual std::int64_t epoch_size(std::int64_t epoch) const = 0;

  /// The part of `shard` of the batch at `from`; `batch` is overwritten, its memory used again.
  /// **Errors.** FailedPrecondition: `from` belongs to another plan; OutOfRange: it lies beyond the
  /// end; InvalidArgument: no valid shard, or more ranks than the batch has samples.
  virtual Status NextBatch(const DatasetState& from, const Shard& shard,
                           PlannedBatch& batch) const = 0;

  // What a loader must know to put another sample in the place of a bad one. A plan that takes all
  // samples of its sources and does not look at their lengths need not say any of it.

  /// Digest of a source, for a loader to see that it has the same; nullopt: none, or not known.
  virtual std::optional<std::uint64_t> source_digest(std::int32_t /*source*/) const { return {}; }
  /// How many samples of a source may come in an epoch; nullopt: all of them.
  virtual std::optional<std::int64_t> taken_count(std::int32_t /*source*/,
                                                  std::int64_t /*epoch*/) const {
    return {};
  }
  /// The id of one of these, 0 ≤ index < taken_count.
  virtual std::int64_t taken_id(std::int32_t /*source*/, std::int64_t /*epoch*/,
                                std::int64_t index) const {
    return index;
  }
  /// Length of a sample where batches are made by lengths, so that one in its place must not be
  /// longer; nullopt: they are not.
  virtual std::optional<std::int64_t> length(std::int32_t /*source*/, std::int64_t /*id*/) const {
    return {};
  }
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_BATCH_PLAN_H_
