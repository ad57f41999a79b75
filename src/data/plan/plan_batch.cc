// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "data/plan/data_plan_impl_internal.h"

namespace ait::inline v0 {

// Samples at neighbouring places, without looking up stage and window for each of them.
class DataPlan::Impl::Walk {
 public:
  explicit Walk(const Impl& plan) : plan_(plan) {}

  PlannedSample At(std::int64_t epoch, std::int64_t position) {
    if (epoch != epoch_) {
      epoch_ = epoch;
      stage_ = plan_.StageOf(epoch).stage.get();
      window_ = nullptr;
    }
    std::int64_t at = position;
    if (plan_.has_windows()) {
      if (window_ == nullptr || position / plan_.window_samples_ != number_) {
        number_ = position / plan_.window_samples_;
        window_ = plan_.Window(epoch, number_);
      }
      const std::int64_t begin = number_ * plan_.window_samples_;
      at = begin + window_->places[static_cast<std::size_t>(position - begin)];
    }
    const internal::SourceItem item = stage_->At(epoch, at);
    return {.source = item.source, .id = item.id, .epoch = epoch, .position = position};
  }

 private:
  const Impl& plan_;
  std::int64_t epoch_ = -1;
  const internal::Stage* stage_ = nullptr;
  std::int64_t number_ = -1;
  std::shared_ptr<const internal::Regrouped> window_;
};

std::int64_t DataPlan::Impl::SamplesBefore(std::int64_t epoch, std::int64_t position) const {
  const StageAt& at = StageOf(epoch);
  return at.samples_before + (epoch - at.stage->first_epoch()) * at.stage->epoch_size() + position;
}

std::int64_t DataPlan::Impl::RowsBefore(const DatasetState& state) const {
  const StageAt& at = StageOf(state.epoch);
  return at.rows_before + (state.epoch - at.stage->first_epoch()) * at.rows_per_epoch +
         state.delivered;
}

std::int64_t DataPlan::Impl::SamplesToEnd(const DatasetState& at) const {
  if (options_.epoch_border == EpochBorder::kStop) return epoch_size(at.epoch) - at.delivered;
  return total_samples_ - SamplesBefore(at.epoch, at.delivered);
}

void DataPlan::Impl::Advance(DatasetState& at, std::int64_t samples) const {
  at.delivered += samples;
  for (std::int64_t size = epoch_size(at.epoch); at.delivered >= size;
       size = epoch_size(at.epoch)) {
    // Over many epochs of one stage at once.
    const StageAt& stage = StageOf(at.epoch);
    const bool is_last = &stage == &stages_.back();
    const std::int64_t stage_end =
        is_last ? at.epoch + at.delivered / size : (&stage)[1].stage->first_epoch();
    const std::int64_t count = std::min(at.delivered / size, stage_end - at.epoch);
    at.epoch += count;
    at.delivered -= count * size;
  }
}

StatusOr<DatasetState> DataPlan::Impl::Normalise(DatasetState state) const {
  if (state.plan_digest != digest_) {
    return FailedPreconditionError(
        "the state ", ToJson(state), " belongs to another plan than this one, ",
        ToJson(DatasetState{.plan_digest = digest_}),
        ": the sources, their order, shares or stages, the seed, or bucketing or packing is not "
        "the same as when it was saved; digest and facts of the plan tell which");
  }
  const auto beyond = [&](std::string_view what) {
    return OutOfRangeError("the state ", ToJson(state), " is beyond ", what);
  };
  if (state.epoch < 0 || state.delivered < 0) return beyond("the start: numbers below 0");
  if (state.epoch > epochs_ || (state.epoch == epochs_ && state.delivered > 0)) {
    return beyond(StrCat("the ", epochs_, " epochs of the plan"));
  }
  if (state.epoch == epochs_) return state;
  const std::int64_t size = epoch_size(state.epoch);
  if (state.delivered > size) return beyond(StrCat("the ", size, " samples of the epoch"));
  if (state.delivered == size) return DatasetState{state.plan_digest, state.epoch + 1, 0};
  if (is_packed() && state.delivered > 0) {
    const std::int64_t window = state.delivered / window_samples_;
    const auto rows = Window(state.epoch, window);
    if (!std::binary_search(rows->row_begins.begin(), rows->row_begins.end(),
                            state.delivered - window * window_samples_)) {
      return OutOfRangeError("the state ", ToJson(state),
                             " lies within a packed row; only whole rows are delivered");
    }
  }
  return state;
}

Status DataPlan::Impl::NextBatch(const DatasetState& from, const Shard& shard,
                                 PlannedBatch& batch) const {
  batch.samples.clear();
  batch.row_begins.clear();
  batch.global_samples = 0;
  batch.is_end = false;
  batch.after = from;
  if (!shard.is_valid()) {
    return InvalidArgumentError("rank ", shard.rank, " is not one of a world of ", shard.size);
  }
  if (options_.global_batch_size < shard.size.value()) {
    return InvalidArgumentError("global batch size ", options_.global_batch_size,
                                " is less than the world size ", shard.size,
                                ": every rank needs at least one row");
  }
  AIT_ASSIGN_OR_RETURN(const DatasetState at, Normalise(from));
  return is_packed() ? NextPackedRows(at, shard, batch) : NextRows(at, shard, batch);
}

Status DataPlan::Impl::NextRows(DatasetState at, const Shard& shard, PlannedBatch& batch) const {
  const std::int64_t most = options_.global_batch_size;
  batch.after = at;
  if (at.epoch < epochs_ && SamplesToEnd(at) < most && options_.last_batch == LastBatch::kDrop) {
    at = {digest_, options_.epoch_border == EpochBorder::kStop ? at.epoch + 1 : epochs_, 0};
  }
  if (at.epoch >= epochs_) {
    batch.is_end = true;
    return OkStatus();
  }
  const std::int64_t samples = std::min(most, SamplesToEnd(at));
  const std::int64_t rows = options_.last_batch == LastBatch::kPad ? most : samples;
  const internal::RowRange part =
      internal::PartOf(shard, rows, RowsBefore(at) % shard.size.value());
  batch.samples.reserve(static_cast<std::size_t>(part.end - part.begin));
  batch.global_samples = samples;
  batch.after = at;
  Advance(batch.after, samples);
  Walk walk(*this);
  DatasetState cursor = at;
  Advance(cursor, std::min(part.begin, samples));
  for (std::int64_t row = part.begin; row < std::min(part.end, samples); ++row) {
    batch.samples.push_back(walk.At(cursor.epoch, cursor.delivered));
    Advance(cursor, 1);
  }
  // Padding begins with the first samples of the epoch that ends.
  const std::int64_t epoch = batch.after.epoch - 1;
  for (std::int64_t row = std::max(part.begin, samples); row < part.end; ++row) {
    batch.samples.push_back(walk.At(epoch, (row - samples) % epoch_size(epoch)));
    batch.samples.back().is_padding = true;
  }
  return OkStatus();
}

void DataPlan::Impl::AppendRows(DatasetState& at, std::size_t count, bool is_padding,
                                std::vector<PackedRow>& rows) const {
  const std::int64_t size = epoch_size(at.epoch);
  while (rows.size() < count && at.delivered < size) {
    const std::int64_t number = at.delivered / window_samples_;
    const std::int64_t begin = number * window_samples_;
    const auto window = Window(at.epoch, number);
    auto row = std::lower_bound(window->row_begins.begin(), window->row_begins.end(),
                                at.delivered - begin);
    for (; rows.size() < count && row + 1 != window->row_begins.end(); ++row) {
      rows.push_back({at.epoch, begin + row[0], begin + row[1], is_padding});
      at.delivered = begin + row[1];
    }
  }
}

Status DataPlan::Impl::NextPackedRows(DatasetState at, const Shard& shard,
                                      PlannedBatch& batch) const {
  const auto most = static_cast<std::size_t>(options_.global_batch_size);
  const bool stops = options_.epoch_border == EpochBorder::kStop;
  batch.after = at;
  std::vector<PackedRow> rows;
  DatasetState cursor = at;
  while (cursor.epoch < epochs_) {
    AppendRows(cursor, most, false, rows);
    if (cursor.delivered == epoch_size(cursor.epoch)) cursor = {digest_, cursor.epoch + 1, 0};
    if (rows.size() == most) break;
    if (!stops) continue;
    if (options_.last_batch != LastBatch::kDrop) break;
    if (at.delivered == 0) {
      return InvalidArgumentError("epoch ", at.epoch, " is packed into ", rows.size(),
                                  " rows, less than a batch of ", most,
                                  ", and LastBatch::kDrop would leave out all of them");
    }
    rows.clear();
    at = cursor;
  }
  if (rows.empty() || (rows.size() < most && options_.last_batch == LastBatch::kDrop)) {
    batch.is_end = true;
    return OkStatus();
  }
  batch.after = cursor;
  for (const PackedRow& row : rows) batch.global_samples += row.end - row.begin;
  while (rows.size() < most && options_.last_batch == LastBatch::kPad) {
    DatasetState first = {digest_, cursor.epoch - 1, 0};
    AppendRows(first, most, true, rows);
  }
  const internal::RowRange part =
      internal::PartOf(shard, static_cast<std::int64_t>(rows.size()),
                       SamplesBefore(at.epoch, at.delivered) % shard.size.value());
  Walk walk(*this);
  for (std::int64_t r = part.begin; r < part.end; ++r) {
    const PackedRow& row = rows[static_cast<std::size_t>(r)];
    batch.row_begins.push_back(static_cast<std::int64_t>(batch.samples.size()));
    for (std::int64_t position = row.begin; position < row.end; ++position) {
      batch.samples.push_back(walk.At(row.epoch, position));
      batch.samples.back().is_padding = row.is_padding;
    }
  }
  batch.row_begins.push_back(static_cast<std::int64_t>(batch.samples.size()));
  return OkStatus();
}

}  // namespace ait::inline v0
