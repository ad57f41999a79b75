// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_DATA_PLAN_IMPL_INTERNAL_H_
#define AIT_DATA_PLAN_DATA_PLAN_IMPL_INTERNAL_H_

// What copies of a plan share: stages over the epochs, windows over the order of an epoch
// (bucketing, packing), and batches over that.

#include <cstdint>
#include <memory>
#include <vector>

#include "ait/data/plan/data_plan.h"
#include "data/plan/part_of_internal.h"
#include "data/plan/recent_internal.h"
#include "data/plan/regroup_internal.h"
#include "data/plan/stage_internal.h"

namespace ait::inline v0 {

class DataPlan::Impl {
 public:
  static StatusOr<std::shared_ptr<const Impl>> Create(std::vector<PlanSource> sources,
                                                      DataPlanOptions options);
  Impl(std::vector<PlanSource> sources, DataPlanOptions options)
      : sources_(std::move(sources)), options_(std::move(options)) {}

  const std::vector<PlanSource>& sources() const { return sources_; }
  const DataPlanOptions& options() const { return options_; }
  std::uint64_t digest() const { return digest_; }
  std::int64_t epochs() const { return epochs_; }
  std::int64_t epoch_size(std::int64_t epoch) const { return StageOf(epoch).stage->epoch_size(); }

  /// The part of a source in an epoch; nullptr if it is not in it.
  const internal::Selection* TakenOf(std::int32_t source, std::int64_t epoch) const {
    return StageOf(epoch).stage->SelectionOf(source);
  }
  PlannedSample At(std::int64_t epoch, std::int64_t position) const;
  StatusOr<DatasetState> Normalise(DatasetState state) const;
  StatusOr<std::vector<SourceProgress>> Progress(const DatasetState& state) const;
  std::vector<PlannedBlock> BlocksNeeded(std::int64_t epoch, std::int64_t begin,
                                         std::int64_t end) const;
  std::vector<std::string> Facts() const;
  Status NextBatch(const DatasetState& from, const Shard& shard, PlannedBatch& batch) const;

 private:
  struct StageAt {
    std::unique_ptr<internal::Stage> stage;
    std::int64_t samples_before = 0;  // in all epochs before its first
    std::int64_t rows_before = 0;     // that batches have delivered by then
    std::int64_t rows_per_epoch = 0;
  };
  class Walk;

  Status CheckOptions() const;
  Status SetUp();
  Status SetUpEpochs();
  void SetUpDigest();
  const StageAt& StageOf(std::int64_t epoch) const;
  bool has_windows() const { return window_samples_ > 0; }
  bool is_packed() const { return options_.packing.window_samples > 0; }
  std::shared_ptr<const internal::Regrouped> Window(std::int64_t epoch, std::int64_t window) const;
  internal::Regrouped MakeWindow(internal::WindowKey key) const;
  // Samples before a place of the run, over all its epochs.
  std::int64_t SamplesBefore(std::int64_t epoch, std::int64_t position) const;
  std::int64_t RowsPerEpoch(std::int64_t epoch_size) const;
  std::int64_t RowsBefore(const DatasetState& at) const;
  // Samples from here to where batches end: the end of the epoch, or of all of them.
  std::int64_t SamplesToEnd(const DatasetState& at) const;
  // The place some samples later, which lie before the end.
  void Advance(DatasetState& at, std::int64_t samples) const;

  Status NextRows(DatasetState at, const Shard& shard, PlannedBatch& batch) const;
  Status NextPackedRows(DatasetState at, const Shard& shard, PlannedBatch& batch) const;
  struct PackedRow {
    std::int64_t epoch;
    std::int64_t begin;  // positions
    std::int64_t end;
    bool is_padding;
  };
  // Appends rows from `at` on until there are `count` or the epoch ends; moves `at` behind them.
  void AppendRows(DatasetState& at, std::size_t count, bool is_padding,
                  std::vector<PackedRow>& rows) const;

  const std::vector<PlanSource> sources_;
  const DataPlanOptions options_;
  std::vector<StageAt> stages_;
  std::int64_t epochs_ = 0;          // that are less than 2^62 samples in all
  std::int64_t total_samples_ = 0;   // of these
  std::int64_t window_samples_ = 0;  // of bucketing or packing
  std::int64_t group_samples_ = 0;
  std::uint64_t digest_ = 0;
  mutable internal::Recent<internal::WindowKey, internal::Regrouped> recent_{4};
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_DATA_PLAN_IMPL_INTERNAL_H_
