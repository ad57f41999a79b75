// SPDX-License-Identifier: Apache-2.0
#include "activation/segment_recorder_internal.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

namespace ait::inline v0::internal {

class SegmentRecorder::Watcher final : public SavedTensorPolicy {
 public:
  Watcher(std::shared_ptr<SegmentRecorder> recorder, int segment)
      : recorder_(std::move(recorder)), segment_(segment) {}

  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
    recorder_->Saved(segment_, tensor);
    return nullptr;
  }
  bool TakesParameters() const override { return false; }

 private:
  std::shared_ptr<SegmentRecorder> recorder_;
  int segment_;
};

namespace {

constexpr std::int64_t kGeneratorBytes = 5056;  // of the CPU, as at::CPUGeneratorImpl gives it

const void* DataOf(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

}  // namespace

SegmentRecorder::SegmentRecorder() : stages_(1) {}

std::shared_ptr<SavedTensorPolicy> SegmentRecorder::Watch(int segment) {
  return std::make_shared<Watcher>(shared_from_this(), segment);
}

int SegmentRecorder::Open(std::string_view name) {
  if (depth_++ > 0 || IsRecomputing()) return -1;
  for (const Segment& segment : segments_) {
    if (segment.name == name && twice_.empty()) twice_ = name;
  }
  if (is_back_) return -1;  // a step has one backward
  segments_.emplace_back().name = name;
  return static_cast<int>(segments_.size()) - 1;
}

void SegmentRecorder::TakePeak() {
  stages_[stage_].peak = std::max(stages_[stage_].peak, live_.TakePeak());
}

void SegmentRecorder::Enter(std::size_t stage) {
  TakePeak();
  if (stages_.size() <= stage) stages_.resize(stage + 1);
  stage_ = stage;
  stages_[stage].before = live_.live();
}

void SegmentRecorder::ComeBack(std::size_t stage) {
  is_back_ = true;
  TakePeak();
  stage_ = std::min(stage_, stage);  // several results, or a gradient that takes another way
}

void SegmentRecorder::Input(int segment, const at::Tensor& tensor) {
  if (segment < 0) return;
  if (const auto block = live_.Find(DataOf(tensor))) {
    at(segment).inputs.insert(block->serial);
    bytes_[block->serial] = block->bytes;
  }
  if (!tensor.defined() || !tensor.requires_grad()) return;
  tensor.register_hook([recorder = weak_from_this(), segment](const at::Tensor&) {
    if (const auto held = recorder.lock()) held->ComeBack(2 * static_cast<std::size_t>(segment));
  });
}

void SegmentRecorder::Begin(int segment) {
  if (segment < 0) return;
  Enter(2 * static_cast<std::size_t>(segment) + 1);
  at(segment).first_serial = live_.next_serial();
  at(segment).begin = Clock::now();
}

void SegmentRecorder::End(int segment) {
  --depth_;
  if (segment < 0) return;
  at(segment).end_serial = live_.next_serial();
  Enter(2 * static_cast<std::size_t>(segment) + 2);
}

void SegmentRecorder::Result(int segment, const at::Tensor& tensor) {
  if (segment < 0) return;
  if (const auto block = live_.Find(DataOf(tensor))) {
    at(segment).results.insert(block->serial);
    bytes_[block->serial] = block->bytes;
  }
  if (!tensor.defined() || !tensor.requires_grad()) return;
  tensor.register_hook([recorder = weak_from_this(), segment](const at::Tensor&) {
    if (const auto held = recorder.lock()) {
      held->ComeBack(2 * static_cast<std::size_t>(segment) + 1);
    }
  });
}

void SegmentRecorder::Saved(int segment, const at::Tensor& tensor) {
  if (segment >= 0) {
    const std::chrono::duration<double> since = Clock::now() - at(segment).begin;
    at(segment).seconds = since.count();
  }
  const auto block = live_.Find(DataOf(tensor));
  if (!block) return;
  bytes_[block->serial] = block->bytes;
  auto& saved = segment < 0 ? saved_outside_ : at(segment).saved;
  if (saved.insert(block->serial).second) ++savers_[block->serial];
}

std::int64_t SegmentRecorder::BytesOf(const std::unordered_set<std::int64_t>& serials) const {
  std::int64_t bytes = 0;
  for (const std::int64_t serial : serials) bytes += bytes_.at(serial);
  return bytes;
}

StatusOr<StepProfile> SegmentRecorder::Finish(const MemoryPlannerOptions& options,
                                              const ActivationPlanOptions& plan) {
  TakePeak();
  const std::chrono::duration<double> took = Clock::now() - begin_;
  if (!twice_.empty()) {
    return InvalidArgumentError(
        "segment ", twice_,
        " ran twice in the measured step; give every call a name of its own, and measure one "
        "micro-step");
  }
  if (segments_.empty()) {
    return InvalidArgumentError(
        "no segment ran in the measured step; call the parts of the model by ActivationPlan::Run, "
        "on "
        "the thread that calls Measure");
  }
  StepProfile profile{.seconds = took.count()};
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    const bool is_last = s + 1 == stages_.size();
    SegmentCost cost;
    cost.keep.peak_bytes = std::max<std::int64_t>(0, stage.peak - stage.before);
    cost.keep.held_bytes = is_last ? 0 : stages_[s + 1].before - stage.before;
    profile.peak_bytes = std::max(profile.peak_bytes, stage.peak);
    if (s % 2 == 0) {
      cost.name = s == 0    ? StrCat("(before ", segments_.front().name, ")")
                  : is_last ? StrCat("(after ", segments_.back().name, ")")
                            : StrCat("(before ", segments_[s / 2].name, ")");
      if (cost.keep.held_bytes != 0 || cost.keep.peak_bytes > 0) profile.segments.push_back(cost);
      continue;
    }
    const Segment& segment = segments_[s / 2];
    cost.name = segment.name;
    std::int64_t freed = 0;
    for (const std::int64_t serial : segment.saved) {
      const bool is_own = serial >= segment.first_serial && serial < segment.end_serial;
      if (is_own && savers_.at(serial) == 1 && !segment.results.contains(serial)) {
        freed += bytes_.at(serial);
      }
    }
    // The state of a generator, and inputs that nothing else would hold.
    std::int64_t extra = plan.preserve_random_state ? kGeneratorBytes : 0;
    for (const std::int64_t serial : segment.inputs) {
      if (!savers_.contains(serial)) extra += bytes_.at(serial);
    }
    if (freed - extra >= options.least_freed.value()) {
      cost.recompute = ActionCost{.held_bytes = cost.keep.held_bytes - freed + extra,
                                  .peak_bytes = cost.keep.peak_bytes + extra,
                                  .seconds = segment.seconds};
    }
    if (plan.offload != nullptr && freed >= options.least_freed.value()) {
      const auto moved =
          static_cast<std::int64_t>(static_cast<double>(freed) * (1 - options.offload_keeps));
      cost.offload = ActionCost{
          .held_bytes = cost.keep.held_bytes - moved,
          .peak_bytes = cost.keep.peak_bytes,
          .seconds = static_cast<double>(freed) / 0x1p30 * options.offload_seconds_per_gib};
    }
    profile.segments.push_back(std::move(cost));
  }
  return profile;
}

}  // namespace ait::inline v0::internal
