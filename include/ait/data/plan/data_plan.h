// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_DATA_PLAN_H_
#define AIT_DATA_PLAN_DATA_PLAN_H_

// Which rank reads which sample when, as a function instead of a list.
//
// The order of an epoch is one order for all ranks, a pure function of sources, seed and epoch.
// Batches are cut from it one after the other, and ranks take contiguous parts of each batch that
// differ by at most one row. So every sample comes exactly once per epoch whatever the number of
// ranks, and {digest, epoch, delivered} resumes a run exactly, on another number of ranks and with
// another batch size. docs/resuming.md says what may change.
//
//   AIT_ASSIGN_OR_RETURN(DataPlan plan, DataPlan::Create({MakePlanSource(*source)},
//                            {.global_batch_size = 256, .seed = 1, .epochs = 10}));
//   AIT_RETURN_IF_ERROR(AgreeOnPlan(*world->communicator(), plan, world->shard()));
//   AIT_RETURN_IF_ERROR(plan.NextBatch(plan.start(), world->shard(), batch));
//
// A shuffled plan takes no memory that grows with the number of samples; a shuffle by blocks takes
// about 64 bytes a block; bucketing and packing keep a few windows.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/shard.h"
#include "ait/base/status.h"
#include "ait/data/dataset_state.h"
#include "ait/data/plan/batch_plan.h"
#include "ait/data/plan/plan_options.h"

namespace ait::inline v0 {

/// How far a source is.
struct SourceProgress {
  std::string name;
  std::int64_t epoch = 0;  // passes over the source that are behind
  /// Samples of the pass at hand that all ranks together have received. Unknown where several
  /// sources are shuffled into one permutation.
  std::optional<std::int64_t> taken;
  std::int64_t size = 0;  // samples of a pass; 0: not read in this epoch

  bool operator==(const SourceProgress&) const = default;
};

/// One line of JSON: `[{"epoch":0,"name":"web","size":700,"taken":12}, …]`, unknown as null.
std::string ToJson(const std::vector<SourceProgress>& progress);

/// A block of a source, and when an epoch needs it.
struct PlannedBlock {
  std::int32_t source = 0;
  std::int64_t block = 0;           // as counted by PlanSource::block_begins
  std::int64_t begin_position = 0;  // its samples come at positions from here
  std::int64_t end_position = 0;    // to before here

  bool operator==(const PlannedBlock&) const = default;
};

/// **Thread-safety.** Immutable; copies share what they are made of.
class DataPlan final : public BatchPlan {
 public:
  /// **Errors.** InvalidArgument: an option out of range, a source without samples, shares that do
  /// not fit the sources, or 2^62 samples and more in all.
  static StatusOr<DataPlan> Create(std::vector<PlanSource> sources, DataPlanOptions options);

  std::uint64_t digest() const override;
  std::vector<std::string> Facts() const override;
  std::int64_t epoch_size(std::int64_t epoch) const override;
  Status NextBatch(const DatasetState& from, const Shard& shard,
                   PlannedBatch& batch) const override;
  std::optional<std::uint64_t> source_digest(std::int32_t source) const override;
  std::optional<std::int64_t> taken_count(std::int32_t source, std::int64_t epoch) const override;
  std::int64_t taken_id(std::int32_t source, std::int64_t epoch, std::int64_t index) const override;
  std::optional<std::int64_t> length(std::int32_t source, std::int64_t id) const override;

  const std::vector<PlanSource>& sources() const;
  const DataPlanOptions& options() const;
  /// Before the first batch.
  DatasetState start() const { return {.plan_digest = digest()}; }

  /// The sample at a position of an epoch, 0 ≤ position < epoch_size(epoch). **Cost.** Less than
  /// 100 ns, and with 100,000 blocks twice that; with bucketing and packing that of a window, unless
  /// it is one of the last few. `NextBatch` is faster for neighbours.
  PlannedSample At(std::int64_t epoch, std::int64_t position) const;

  /// `state`, or the same place in the next epoch if it is the end of one.
  /// **Errors.** FailedPrecondition: of another plan; OutOfRange: beyond the end, or within a row.
  StatusOr<DatasetState> Normalise(const DatasetState& state) const;

  /// How far every source is. **Errors.** As `Normalise`.
  StatusOr<std::vector<SourceProgress>> Progress(const DatasetState& state) const;

  /// The blocks that positions `begin` to before `end` of an epoch are taken from, by the position
  /// at which they are first needed: what to open, and from when until when to keep it. Blocks of a
  /// window that the end of the epoch cuts in two are all listed in both. Under kShuffled any block
  /// may be needed at any time: all are listed, for the whole epoch.
  std::vector<PlannedBlock> BlocksNeeded(std::int64_t epoch, std::int64_t begin,
                                         std::int64_t end) const;

 private:
  class Impl;
  explicit DataPlan(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_DATA_PLAN_H_
