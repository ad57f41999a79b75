// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/checkpoint.h"

// Keep the order.
#include "activation/segment_internal.h"
// clang-format off
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
// clang-format on

#include <utility>

#include "activation/recompute_function_internal.h"
#include "ait/activation/saved_tensors.h"
#include "ait/base/throw_on_error.h"

namespace ait::inline v0::internal {
namespace {

/// What holds while forward runs a segment.
class Recorder final : public SavedTensorPolicy {
 public:
  explicit Recorder(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}
  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
    return segment_->Record(tensor);
  }

 private:
  std::shared_ptr<Segment> segment_;
};

CheckpointCall::Way WayNow() {
  if (!c10::GradMode::is_enabled() || c10::InferenceMode::is_enabled()) {
    return CheckpointCall::Way::kPlain;
  }
  return SavedTensorScope::Available().ok() ? CheckpointCall::Way::kHooks
                                            : CheckpointCall::Way::kFunction;
}

}  // namespace

const CheckpointOptions& DefaultCheckpointOptions() {
  static const auto* const options = new CheckpointOptions();
  return *options;
}

struct CheckpointCall::Scope {
  explicit Scope(const std::shared_ptr<Segment>& segment)
      : segment(*segment),
        recorder(std::make_shared<Recorder>(segment)),
        keep(segment->replay.Record(), segment->replay.keeps_operators()) {}
  ~Scope() {
    segment.Close();
    const auto& counters = segment.replay.options().counters;
    if (counters != nullptr && !IsRecomputing()) {
      counters->kept_bytes += segment.replay.kept_bytes();
    }
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  Segment& segment;
  SavedTensorScope recorder;
  KeepContextScope keep;
};

CheckpointCall::CheckpointCall(const CheckpointOptions& options) : way_(WayNow()) {
  if (way_ == Way::kPlain) return;
  segment_ = std::make_shared<Segment>(options);
  if (options.counters != nullptr && !IsRecomputing()) ++options.counters->segments;
}

CheckpointCall::~CheckpointCall() = default;

void CheckpointCall::Take(at::Tensor& input) {
  segment_->replay.Take(input);
  if (way_ == Way::kFunction) inputs_.push_back(input);
  input.reset();
}

void CheckpointCall::Begin(Function again) {
  if (way_ == Way::kFunction) {
    ThrowOnError(
        FailedPreconditionError("checkpointed segment ", segment_->replay.options().name,
                                " returns nothing, which its backward could be followed into: ",
                                std::string(SavedTensorScope::Available().message()),
                                "; let the function return its results"));
  }
  segment_->replay.set_function(std::move(again));
  scope_ = std::make_unique<Scope>(segment_);
}

std::vector<at::Tensor> CheckpointCall::Run(const Function& first, Function again) {
  segment_->replay.set_function(std::move(again));
  return RunAsFunction(std::shared_ptr<SegmentReplay>(segment_, &segment_->replay), inputs_, first);
}

}  // namespace ait::inline v0::internal
