// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/segments.h"

#include <ATen/core/Generator.h>

#include "activation/segment_recorder_internal.h"

namespace ait::inline v0 {

ActivationPlan::ActivationPlan(ActivationPlanOptions options) : options_(std::move(options)) {}
ActivationPlan::~ActivationPlan() = default;

void ActivationPlan::Set(std::string_view name, SegmentAction action) {
  actions_.insert_or_assign(std::string(name), action);
}

SegmentAction ActivationPlan::action(std::string_view name) const {
  const auto found = actions_.find(name);
  return found == actions_.end() ? SegmentAction::kKeep : found->second;
}

namespace internal {

SegmentCall::SegmentCall(ActivationPlan& plan, std::string_view name)
    : plan_(plan),
      action_(plan.recorder_ == nullptr ? plan.action(name) : SegmentAction::kKeep),
      recorder_(plan.recorder_) {
  if (recorder_ != nullptr) segment_ = recorder_->Open(name);
  if (action_ != SegmentAction::kRecompute) return;
  const ActivationPlanOptions& options = plan.options();
  checkpoint_ = std::make_shared<CheckpointOptions>(
      CheckpointOptions{.name = std::string(name),
                        .determinism = options.determinism,
                        .preserve_random_state = options.preserve_random_state,
                        .keep = options.keep,
                        .counters = options.counters});
}

SegmentCall::~SegmentCall() = default;

void SegmentCall::Input(const at::Tensor& tensor) { recorder_->Input(segment_, tensor); }

void SegmentCall::Begin() {
  if (recorder_ != nullptr) {
    if (segment_ < 0) return;  // the outer segment watches
    scope_ = std::make_unique<SavedTensorScope>(recorder_->Watch(segment_));
    recorder_->Begin(segment_);
  } else if (action_ == SegmentAction::kOffload && plan_.options().offload != nullptr) {
    scope_ = std::make_unique<SavedTensorScope>(plan_.options().offload);
  }
}

void SegmentCall::End() {
  scope_.reset();
  if (recorder_ != nullptr) recorder_->End(segment_);
}

void SegmentCall::Result(const at::Tensor& tensor) { recorder_->Result(segment_, tensor); }

}  // namespace internal
}  // namespace ait::inline v0
