// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include "data/json_internal.h"
#include "data/plan/data_plan_impl_internal.h"

namespace ait::inline v0 {
namespace {

const char* NameOf(SampleOrder order) {
  switch (order) {
    case SampleOrder::kShuffled:
      return "shuffled";
    case SampleOrder::kSequential:
      return "sequential";
    case SampleOrder::kBlockShuffled:
      break;
  }
  return "shuffled by blocks";
}

const char* NameOf(LastBatch last) {
  switch (last) {
    case LastBatch::kShort:
      return "short";
    case LastBatch::kDrop:
      return "dropped";
    case LastBatch::kPad:
      break;
  }
  return "padded";
}

}  // namespace

std::string ToJson(const std::vector<SourceProgress>& progress) {
  nlohmann::json list = nlohmann::json::array();
  for (const SourceProgress& source : progress) {
    nlohmann::json taken;  // null
    if (source.taken) taken = *source.taken;
    list.push_back({{"name", source.name},
                    {"epoch", source.epoch},
                    {"taken", std::move(taken)},
                    {"size", source.size}});
  }
  // Names may be paths, which may be no UTF-8.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

StatusOr<std::vector<SourceProgress>> DataPlan::Impl::Progress(const DatasetState& state) const {
  AIT_ASSIGN_OR_RETURN(const DatasetState at, Normalise(state));
  const internal::Stage& stage = *StageOf(at.epoch).stage;
  const std::int64_t whole =
      has_windows() ? at.delivered / window_samples_ * window_samples_ : at.delivered;
  std::vector<SourceProgress> progress = stage.Progress(sources_, at.epoch, whole);
  // What was delivered of a window is not what comes first in it.
  for (std::int64_t position = whole; position < at.delivered; ++position) {
    SourceProgress& of = progress[static_cast<std::size_t>(At(at.epoch, position).source)];
    if (of.taken) ++*of.taken;
    if (of.taken == of.size && stage.is_mixture()) {
      ++of.epoch;
      of.taken = 0;
    }
  }
  return progress;
}

std::vector<PlannedBlock> DataPlan::Impl::BlocksNeeded(std::int64_t epoch, std::int64_t begin,
                                                       std::int64_t end) const {
  std::vector<PlannedBlock> blocks;
  const std::int64_t size = epoch_size(epoch);
  begin = std::clamp<std::int64_t>(begin, 0, size);
  end = std::clamp<std::int64_t>(end, 0, size);
  if (begin >= end) return blocks;
  const auto window_begin = [&](std::int64_t position) {
    return has_windows() ? position / window_samples_ * window_samples_ : position;
  };
  const auto window_end = [&](std::int64_t position) {
    return has_windows() ? std::min(window_begin(position - 1) + window_samples_, size) : position;
  };
  StageOf(epoch).stage->AppendBlocks(epoch, window_begin(begin), window_end(end), blocks);
  for (PlannedBlock& block : blocks) {
    block.begin_position = window_begin(block.begin_position);
    block.end_position = window_end(block.end_position);
  }
  // A block that comes in two pieces at once is one; two times in an epoch are two.
  const auto key = [](const PlannedBlock& b) {
    return std::tuple(b.source, b.block, b.begin_position, b.end_position);
  };
  std::sort(blocks.begin(), blocks.end(),
            [&](const PlannedBlock& a, const PlannedBlock& b) { return key(a) < key(b); });
  std::vector<PlannedBlock> merged;
  for (const PlannedBlock& block : blocks) {
    if (!merged.empty() && merged.back().source == block.source &&
        merged.back().block == block.block && block.begin_position < merged.back().end_position) {
      merged.back().end_position = std::max(merged.back().end_position, block.end_position);
    } else {
      merged.push_back(block);
    }
  }
  std::stable_sort(merged.begin(), merged.end(), [](const PlannedBlock& a, const PlannedBlock& b) {
    return a.begin_position < b.begin_position;
  });
  return merged;
}

std::vector<std::string> DataPlan::Impl::Facts() const {
  const auto hex = [](std::uint64_t value) { return internal::HexDigits(value, 16); };
  std::vector<std::string> facts = {
      StrCat("seed: ", options_.seed),
      StrCat("order: ", NameOf(options_.order)),
      StrCat("global batch size: ", options_.global_batch_size),
      StrCat("epochs: ", options_.epochs),
      StrCat("batches at the end of an epoch: ",
             options_.epoch_border == EpochBorder::kRunOn ? "run on" : "stop"),
      StrCat("last batch: ", NameOf(options_.last_batch)),
      StrCat("sources: ", sources_.size())};
  if (options_.order == SampleOrder::kBlockShuffled) {
    facts.push_back(StrCat("blocks of a window: ", options_.window_blocks));
  }
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const PlanSource& source = sources_[s];
    // The same data may lie at another path on each host.
    facts.push_back(StrCat("source ", s, ": ", source.count, " samples, digest ",
                           hex(source.digest), "\t(", source.name, ")"));
    if (options_.order == SampleOrder::kBlockShuffled) {
      facts.push_back(StrCat("blocks of source ", s, ": ", source.block_begins.size()));
    }
    if (has_windows()) {
      facts.push_back(StrCat("lengths of source ", s, ": digest ", hex(source.lengths.digest)));
    }
  }
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    facts.push_back(StrCat("stage ", i, ": from epoch ", stages_[i].stage->first_epoch(), ", of ",
                           stages_[i].stage->epoch_size(), " samples, digest ",
                           hex(stages_[i].stage->digest())));
  }
  if (has_windows()) {
    facts.push_back(StrCat(is_packed() ? "packing" : "bucketing", ": windows of ", window_samples_,
                           " samples, ",
                           is_packed() ? StrCat("rows of ", options_.packing.row_budget)
                                       : StrCat("groups of ", group_samples_)));
  }
  facts.push_back(StrCat("plan digest: ", hex(digest_)));
  return facts;
}

}  // namespace ait::inline v0
