// SPDX-License-Identifier: Apache-2.0

// Keep the order.
#include "activation/segment_internal.h"
// clang-format off
#include <c10/core/GradMode.h>
#include <c10/util/irange.h>
// clang-format on

#include <algorithm>
#include <cstring>
#include <utility>

#include "activation/save_by_internal.h"
#include "ait/base/throw_on_error.h"

namespace ait::inline v0 {
namespace internal {
namespace {

thread_local int replays = 0;

/// Destroys one after the other what would destroy each other in turn: functions hold tensors whose
/// graph holds the segments before, thousands deep.
class Graveyard {
 public:
  static void Bury(CheckpointCall::Function function, std::vector<SegmentInput> inputs) {
    thread_local std::vector<Remains>* open = nullptr;
    if (open != nullptr) {
      open->push_back({std::move(function), std::move(inputs)});
      return;
    }
    std::vector<Remains> remains;
    open = &remains;
    remains.push_back({std::move(function), std::move(inputs)});
    while (!remains.empty()) {
      const Remains last = std::move(remains.back());
      remains.pop_back();
    }
    open = nullptr;
  }

 private:
  struct Remains {
    CheckpointCall::Function function;
    std::vector<SegmentInput> inputs;
  };
};

class ReplayMark {
 public:
  ReplayMark() { ++replays; }
  ~ReplayMark() { --replays; }
  ReplayMark(const ReplayMark&) = delete;
  ReplayMark& operator=(const ReplayMark&) = delete;
};

template <typename Numbers>
std::string List(const Numbers& numbers) {
  std::string list = "[";
  for (const std::int64_t number : numbers) list += StrCat(list.size() > 1 ? ", " : "", number);
  return list + "]";
}

}  // namespace

TensorMetadata::TensorMetadata(const at::Tensor& tensor)
    : sizes(tensor.sizes()),
      dtype(tensor.scalar_type()),
      device(tensor.device()),
      layout(tensor.layout()) {
  if (layout == c10::Layout::Strided) strides = tensor.strides();
}

std::string Describe(const TensorMetadata& metadata) {
  std::string text = StrCat(c10::toString(metadata.dtype), " ", List(metadata.sizes));
  text += metadata.layout == c10::Layout::Strided ? " with strides " + List(metadata.strides)
                                                  : c10::str(" in layout ", metadata.layout);
  return text + " on " + metadata.device.str();
}

bool SameButStrides(const TensorMetadata& a, const TensorMetadata& b) {
  return a.sizes == b.sizes && a.dtype == b.dtype && a.device == b.device && a.layout == b.layout;
}

bool SameStrides(const TensorMetadata& a, const TensorMetadata& b) {
  if (std::ranges::find(a.sizes, 0) != a.sizes.end()) return true;
  for (std::size_t i = 0; i < std::min(a.strides.size(), b.strides.size()); ++i) {
    if (a.sizes[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

std::uint64_t HashOf(const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const at::Tensor values = tensor.to(c10::DeviceType::CPU).contiguous();
  const auto* data = static_cast<const std::byte*>(values.const_data_ptr());
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::size_t at = 0; at < values.nbytes(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, std::min<std::size_t>(8, values.nbytes() - at));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

SegmentInput::SegmentInput(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  requires_grad_ = tensor.requires_grad();
  metadata_.emplace(tensor);
  const at::Tensor detached = tensor.detach();
  if (const auto policy = SavedTensorScope::Current()) saved_ = SaveBy(*policy, tensor, detached);
  if (saved_ != nullptr) return;
  tensor_ = detached;
  version_.emplace(detached);
}

at::Tensor SegmentInput::Restore(const std::string& segment, std::size_t number,
                                 std::atomic<bool>& strides_differ) const {
  if (!metadata_.has_value()) return {};
  if (version_.has_value() && version_->changed()) {
    ThrowOnError(FailedPreconditionError(
        "checkpointed segment ", segment, ": input ", number, ", ", Describe(*metadata_),
        ", was changed in place after the segment had taken it: it is at version ", version_->now(),
        ", expected version ", version_->saved(), "; give the segment a copy, or change the copy"));
  }
  const at::Tensor restored = saved_ != nullptr ? saved_->Restore() : tensor_;
  const TensorMetadata now(restored);
  if (!SameButStrides(now, *metadata_)) {
    ThrowOnError(FailedPreconditionError(
        "checkpointed segment ", segment, ": input ", number, " was ", Describe(*metadata_),
        " and came back from the policy that saved it as ", Describe(now)));
  }
  if (!SameStrides(now, *metadata_)) strides_differ = true;
  at::Tensor leaf = restored.detach();
  leaf.set_requires_grad(requires_grad_);
  return leaf;
}

SegmentReplay::SegmentReplay(const CheckpointOptions& options)
    : options_(options),
      kept_(options.name, options.keep, options.generators, options.preserve_random_state) {
  if (options.preserve_random_state) random_ = RandomState::Take(options.generators);
}

SegmentReplay::~SegmentReplay() { Graveyard::Bury(std::move(again_), std::move(inputs_)); }

KeepContext SegmentReplay::Record() {
  is_recorded_ = true;
  return {.recorded = &kept_};
}

std::vector<at::Tensor> SegmentReplay::RestoreInputs() {
  std::vector<at::Tensor> restored;
  restored.reserve(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    restored.push_back(inputs_[i].Restore(options_.name, i, strides_differ_));
  }
  return restored;
}

void SegmentReplay::Run(const std::vector<at::Tensor>& inputs,
                        std::vector<at::Tensor>* results) const {
  const ThreadStateGuard thread(thread_);
  const RandomGuard random(random_);
  const ReplayMark mark;
  const KeepContextScope keep({.replayed = is_recorded_ ? &kept_ : nullptr},
                              is_recorded_ && kept_.has_operators());
  again_(inputs, results);
}

}  // namespace internal

bool IsRecomputing() { return internal::replays > 0; }

}  // namespace ait::inline v0
