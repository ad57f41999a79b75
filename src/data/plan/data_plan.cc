// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/data_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "data/mix_internal.h"
#include "data/plan/data_plan_impl_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 62;
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
constexpr std::int64_t kMostWindow = std::int64_t{1} << 24;
constexpr std::uint64_t kVersion = 1;           // of the orders
constexpr std::uint64_t kBucketingVersion = 2;  // of those with bucketing

Status CheckSource(const PlanSource& source, bool needs_lengths) {
  if (source.count < 1) {
    return InvalidArgumentError("it has ", source.count, " samples, at least 1 is needed");
  }
  std::int64_t last = -1;
  for (const std::int64_t begin : source.block_begins) {
    if (begin < 0 || (last < 0 && begin != 0) || (last >= 0 && begin <= last) ||
        begin >= source.count) {
      return InvalidArgumentError("a block begins at sample ", begin, " after one at ", last,
                                  "; begins ascend from 0 to below ", source.count);
    }
    last = begin;
  }
  if (needs_lengths && !source.lengths.of) {
    return InvalidArgumentError("bucketing and packing need the lengths of its samples");
  }
  return OkStatus();
}

Status CheckWindows(const DataPlanOptions& options) {
  const Bucketing& bucketing = options.bucketing;
  const Packing& packing = options.packing;
  if (bucketing.window_samples == 0 && packing.window_samples == 0) return OkStatus();
  if (bucketing.window_samples != 0 && packing.window_samples != 0) {
    return InvalidArgumentError("bucketing and packing exclude each other");
  }
  const std::int64_t window = std::max(bucketing.window_samples, packing.window_samples);
  if (std::min(bucketing.window_samples, packing.window_samples) < 0 || window > kMostWindow) {
    return InvalidArgumentError("windows of ", bucketing.window_samples, " and ",
                                packing.window_samples, " samples are not between 0 and ",
                                kMostWindow);
  }
  if (packing.window_samples != 0 && packing.row_budget < 1) {
    return InvalidArgumentError("the budget of a row is ", packing.row_budget,
                                ", at least 1 is needed");
  }
  if (bucketing.group_samples < 0 ||
      (packing.window_samples == 0 && bucketing.group_samples > window)) {
    return InvalidArgumentError("groups of ", bucketing.group_samples,
                                " samples are not between 1 and the window of ", window);
  }
  return OkStatus();
}

}  // namespace

Status DataPlan::Impl::CheckOptions() const {
  if (sources_.empty()) return InvalidArgumentError("there is no source");
  if (sources_.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    return InvalidArgumentError("there are ", sources_.size(), " sources, too many");
  }
  AIT_RETURN_IF_ERROR(CheckWindows(options_));
  const bool needs_lengths =
      options_.bucketing.window_samples > 0 || options_.packing.window_samples > 0;
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const Status status = CheckSource(sources_[s], needs_lengths);
    if (!status.ok()) return Annotate(status, StrCat("source ", s, " (", sources_[s].name, ")"));
  }
  if (options_.global_batch_size < 1 || options_.global_batch_size > kMostRows) {
    return InvalidArgumentError("global batch size ", options_.global_batch_size,
                                " is not between 1 and ", kMostRows);
  }
  if (options_.epochs < 1) {
    return InvalidArgumentError("epochs is ", options_.epochs, ", at least 1 is needed");
  }
  if (options_.window_blocks < 1) {
    return InvalidArgumentError("a window has ", options_.window_blocks,
                                " blocks, at least 1 is needed");
  }
  return OkStatus();
}

Status DataPlan::Impl::SetUp() {
  AIT_RETURN_IF_ERROR(CheckOptions());
  window_samples_ = std::max(options_.bucketing.window_samples, options_.packing.window_samples);
  group_samples_ = options_.bucketing.group_samples > 0 ? options_.bucketing.group_samples
                                                        : options_.global_batch_size;
  if (options_.bucketing.window_samples > 0 && group_samples_ > window_samples_) {
    return InvalidArgumentError("a window of ", window_samples_,
                                " samples is less than a group of ", group_samples_);
  }
  std::vector<PlanStage> plain = options_.stages;
  if (plain.empty()) plain.resize(1);
  const internal::PoolOrder order = {
      .order = options_.order, .window_blocks = options_.window_blocks, .seed = options_.seed};
  internal::Stage::Standings standings;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const std::int64_t end =
        i + 1 < plain.size() ? plain[i + 1].first_epoch : std::numeric_limits<std::int64_t>::max();
    if ((i == 0 && plain[i].first_epoch != 0) || plain[i].first_epoch >= end ||
        plain[i].first_epoch >= options_.epochs) {
      return InvalidArgumentError("stage ", i, " begins with epoch ", plain[i].first_epoch,
                                  "; stages ascend from 0 to below the ", options_.epochs,
                                  " epochs");
    }
    auto stage = internal::Stage::Create(plain[i], end, sources_, order, standings);
    if (!stage.ok()) return Annotate(stage.status(), StrCat("stage ", i));
    stages_.push_back({.stage = *std::move(stage)});
  }
  AIT_RETURN_IF_ERROR(SetUpEpochs());
  SetUpDigest();
  return OkStatus();
}

std::int64_t DataPlan::Impl::RowsPerEpoch(std::int64_t epoch_size) const {
  const std::int64_t rest = epoch_size % options_.global_batch_size;
  if (options_.epoch_border == EpochBorder::kRunOn || options_.last_batch == LastBatch::kShort) {
    return epoch_size;
  }
  return epoch_size - rest +
         (rest > 0 && options_.last_batch == LastBatch::kPad ? options_.global_batch_size : 0);
}

Status DataPlan::Impl::SetUpEpochs() {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    StageAt& stage = stages_[i];
    const std::int64_t size = stage.stage->epoch_size();
    if (!is_packed() && options_.last_batch == LastBatch::kDrop &&
        options_.epoch_border == EpochBorder::kStop && size < options_.global_batch_size) {
      return InvalidArgumentError("an epoch has ", size, " samples, less than a batch of ",
                                  options_.global_batch_size,
                                  ", and LastBatch::kDrop would leave out all of them");
    }
    stage.rows_per_epoch = RowsPerEpoch(size);
    const std::int64_t first = stage.stage->first_epoch();
    const bool is_last = i + 1 == stages_.size();
    const std::int64_t end = is_last ? options_.epochs : stages_[i + 1].stage->first_epoch();
    // Padding makes an epoch longer than it is, by less than a batch.
    const std::int64_t room = (kMostSamples - std::max(stage.samples_before, stage.rows_before)) /
                              std::max(size, stage.rows_per_epoch);
    if (end - first > room && !(is_last && options_.epochs == kUnlimitedEpochs)) {
      return InvalidArgumentError("epochs ", first, " to ", end - 1, " of ", size,
                                  " samples make more than 2^62 in all; choose fewer epochs");
    }
    const std::int64_t count = std::min(end - first, room);
    epochs_ = first + count;
    total_samples_ = stage.samples_before + count * size;
    if (is_last) break;
    stages_[i + 1].samples_before = total_samples_;
    stages_[i + 1].rows_before = stage.rows_before + count * stage.rows_per_epoch;
  }
  return OkStatus();
}

void DataPlan::Impl::SetUpDigest() {
  const auto fold = [this](auto word) {
    digest_ = internal::Fold(digest_, static_cast<std::uint64_t>(word));
  };
  const bool by_blocks = options_.order == SampleOrder::kBlockShuffled;
  fold(options_.bucketing.window_samples > 0 ? kBucketingVersion : kVersion);
  fold(options_.seed);
  fold(options_.order);
  fold(by_blocks ? options_.window_blocks : 0);
  fold(sources_.size());
  for (const PlanSource& source : sources_) {
    fold(source.digest);
    fold(source.count);
    if (by_blocks) {
      fold(source.block_begins.size());
      for (const std::int64_t begin : source.block_begins) fold(begin);
    }
    if (has_windows()) fold(source.lengths.digest);
  }
  fold(stages_.size());
  for (const StageAt& stage : stages_) fold(stage.stage->digest());
  fold(options_.bucketing.window_samples);
  fold(options_.bucketing.window_samples > 0 ? group_samples_ : 0);
  fold(options_.packing.window_samples);
  fold(options_.packing.window_samples > 0 ? options_.packing.row_budget : 0);
}

StatusOr<std::shared_ptr<const DataPlan::Impl>> DataPlan::Impl::Create(
    std::vector<PlanSource> sources, DataPlanOptions options) {
  auto impl = std::make_shared<Impl>(std::move(sources), std::move(options));
  const Status status = impl->SetUp();
  if (!status.ok()) return Annotate(status, "data plan");
  return impl;
}

const DataPlan::Impl::StageAt& DataPlan::Impl::StageOf(std::int64_t epoch) const {
  std::size_t i = stages_.size() - 1;
  while (i > 0 && epoch < stages_[i].stage->first_epoch()) --i;
  return stages_[i];
}

internal::Regrouped DataPlan::Impl::MakeWindow(internal::WindowKey key) const {
  const internal::Stage& stage = *StageOf(key.epoch).stage;
  const std::int64_t begin = key.window * window_samples_;
  const std::int64_t count = std::min(window_samples_, stage.epoch_size() - begin);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(count));
  std::vector<internal::Pool::Memo> memos;
  for (std::int64_t i = 0; i < count; ++i) {
    const internal::SourceItem item = stage.At(key.epoch, begin + i, memos);
    const PlanSource& source = sources_[static_cast<std::size_t>(item.source)];
    lengths[static_cast<std::size_t>(i)] = std::max<std::int64_t>(0, source.lengths.of(item.id));
  }
  return is_packed()
             ? internal::PackWindow(lengths, options_.packing.row_budget, options_.seed, key)
             : internal::BucketWindow(lengths, group_samples_, options_.seed, key);
}

std::shared_ptr<const internal::Regrouped> DataPlan::Impl::Window(std::int64_t epoch,
                                                                  std::int64_t window) const {
  const internal::WindowKey key = {epoch, window};
  return recent_.Get(key, [&] { return MakeWindow(key); });
}

PlannedSample DataPlan::Impl::At(std::int64_t epoch, std::int64_t position) const {
  std::int64_t at = position;
  if (has_windows()) {
    const std::int64_t window = position / window_samples_;
    const std::int64_t begin = window * window_samples_;
    at = begin + Window(epoch, window)->places[static_cast<std::size_t>(position - begin)];
  }
  const internal::SourceItem item = StageOf(epoch).stage->At(epoch, at);
  return {.source = item.source, .id = item.id, .epoch = epoch, .position = position};
}

StatusOr<DataPlan> DataPlan::Create(std::vector<PlanSource> sources, DataPlanOptions options) {
  AIT_ASSIGN_OR_RETURN(auto impl, Impl::Create(std::move(sources), std::move(options)));
  return DataPlan(std::move(impl));
}

DataPlan::DataPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::uint64_t DataPlan::digest() const { return impl_->digest(); }
std::int64_t DataPlan::epoch_size(std::int64_t epoch) const { return impl_->epoch_size(epoch); }
const std::vector<PlanSource>& DataPlan::sources() const { return impl_->sources(); }
const DataPlanOptions& DataPlan::options() const { return impl_->options(); }

Status DataPlan::NextBatch(const DatasetState& from, const Shard& shard,
                           PlannedBatch& batch) const {
  return impl_->NextBatch(from, shard, batch);
}

std::optional<std::uint64_t> DataPlan::source_digest(std::int32_t source) const {
  if (source < 0 || static_cast<std::size_t>(source) >= sources().size()) return std::nullopt;
  const std::uint64_t digest = sources()[static_cast<std::size_t>(source)].digest;
  return digest == 0 ? std::nullopt : std::optional(digest);
}

std::optional<std::int64_t> DataPlan::taken_count(std::int32_t source, std::int64_t epoch) const {
  const internal::Selection* const taken = impl_->TakenOf(source, epoch);
  return taken == nullptr ? std::nullopt : std::optional(taken->size());
}

std::int64_t DataPlan::taken_id(std::int32_t source, std::int64_t epoch, std::int64_t index) const {
  const internal::Selection* const taken = impl_->TakenOf(source, epoch);
  return taken == nullptr ? index : (*taken)(index);
}

std::optional<std::int64_t> DataPlan::length(std::int32_t source, std::int64_t id) const {
  if (options().bucketing.window_samples == 0 && options().packing.window_samples == 0) {
    return std::nullopt;
  }
  return std::max<std::int64_t>(0, sources()[static_cast<std::size_t>(source)].lengths.of(id));
}

PlannedSample DataPlan::At(std::int64_t epoch, std::int64_t position) const {
  return impl_->At(epoch, position);
}

StatusOr<DatasetState> DataPlan::Normalise(const DatasetState& state) const {
  return impl_->Normalise(state);
}

StatusOr<std::vector<SourceProgress>> DataPlan::Progress(const DatasetState& state) const {
  return impl_->Progress(state);
}

std::vector<PlannedBlock> DataPlan::BlocksNeeded(std::int64_t epoch, std::int64_t begin,
                                                 std::int64_t end) const {
  return impl_->BlocksNeeded(epoch, begin, end);
}

std::vector<std::string> DataPlan::Facts() const { return impl_->Facts(); }

}  // namespace ait::inline v0
