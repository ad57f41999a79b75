// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_SEGMENT_INTERNAL_H_
#define AIT_ACTIVATION_SEGMENT_INTERNAL_H_

// A segment: what forward leaves of it, and how backward gets its tensors.
//
// Each tensor that autograd saves in the segment has a number, and of it are left: its metadata,
// its counter of versions, and a `Slot` in the graph. The first slot that backward asks runs the
// segment again; the tensors that this saves, in the same order, are those that were asked for and
// will be. They are kept for that one backward (a graph task of the engine), each until it is
// asked for or its slot goes.
//
// The graph owns the slots, the slots own the segment. Inputs are saved by the policy that holds
// around the segment: in a segment they are saved tensors of it, as operations would save them.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "activation/kept_results_internal.h"
#include "activation/saved_version_internal.h"
#include "activation/thread_state_internal.h"
#include "ait/activation/checkpoint.h"
#include "ait/activation/saved_tensors.h"
#include "tensor/torch_internal.h"
// Keep the order.
#include <c10/util/SmallVector.h>

namespace ait::inline v0::internal {

struct TensorMetadata {
  explicit TensorMetadata(const at::Tensor& tensor);
  c10::SmallVector<std::int64_t, 4> sizes;
  c10::SmallVector<std::int64_t, 4> strides;  // of dense tensors
  c10::ScalarType dtype;
  c10::Device device;
  c10::Layout layout;
};

/// "float32 [2, 3] with strides [3, 1] on cpu".
std::string Describe(const TensorMetadata& metadata);
/// Strides of dimensions with one index do not count.
bool SameStrides(const TensorMetadata& a, const TensorMetadata& b);
bool SameButStrides(const TensorMetadata& a, const TensorMetadata& b);
/// Of the values.
std::uint64_t HashOf(const at::Tensor& tensor);

/// An input, kept for the next run.
class SegmentInput {
 public:
  explicit SegmentInput(const at::Tensor& tensor);
  /// A leaf with the values of forward. `number` is for messages, and `strides_differ` is set.
  at::Tensor Restore(const std::string& segment, std::size_t number,
                     std::atomic<bool>& strides_differ) const;
  bool requires_grad() const { return requires_grad_; }

 private:
  std::unique_ptr<SavedTensor> saved_;  // by the policy around; null: tensor_ is kept
  at::Tensor tensor_;
  std::optional<SavedVersion> version_;     // of tensor_
  std::optional<TensorMetadata> metadata_;  // none: it was undefined
  bool requires_grad_ = false;
};

/// The part of a segment that both ways of running it again need.
class SegmentReplay {
 public:
  explicit SegmentReplay(const CheckpointOptions& options);
  ~SegmentReplay();
  SegmentReplay(const SegmentReplay&) = delete;
  SegmentReplay& operator=(const SegmentReplay&) = delete;

  void Take(const at::Tensor& input) { inputs_.emplace_back(input); }
  void set_function(CheckpointCall::Function again) { again_ = std::move(again); }

  /// What holds while forward runs the function.
  KeepContext Record();
  bool keeps_operators() const { return kept_.has_operators(); }
  std::int64_t kept_bytes() const { return kept_.bytes(); }

  /// Leaves with the values that the inputs had.
  std::vector<at::Tensor> RestoreInputs();
  /// Calls the function as forward did.
  void Run(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>* results) const;

  const CheckpointOptions& options() const { return options_; }
  const std::vector<SegmentInput>& inputs() const { return inputs_; }
  /// Whether an input came back with other strides than it had.
  bool strides_differ() const { return strides_differ_; }

 private:
  CheckpointOptions options_;
  ThreadState thread_;
  RandomState random_;
  std::vector<SegmentInput> inputs_;
  KeptResults kept_;
  CheckpointCall::Function again_;
  bool is_recorded_ = false;
  std::atomic<bool> strides_differ_ = false;  // backward passes may run at once
};

class Segment : public std::enable_shared_from_this<Segment> {
 public:
  explicit Segment(const CheckpointOptions& options) : replay(options) {}

  /// Forward: the next tensor of the segment.
  std::unique_ptr<SavedTensor> Record(const at::Tensor& tensor);
  /// Forward is over: the segment has all its tensors.
  void Close();

  at::Tensor Restore(std::size_t number);
  void Release(std::size_t number);
  void EndTask(int task);

  SegmentReplay replay;

 private:
  struct Saved {
    TensorMetadata metadata;
    SavedVersion version;
    std::uint64_t hash = 0;  // with kValues
    bool is_alive = true;
  };
  struct Recomputed {
    at::Tensor tensor;
    std::optional<SavedVersion> version;
  };
  struct Task {
    int id = -1;  // of the engine; -1: there is none
    std::vector<Recomputed> tensors;
  };
  class Filler;
  std::vector<Recomputed> Recompute(std::size_t number);
  void CheckSame(std::size_t number, const at::Tensor& tensor) const;

  // Held while the segment runs again, which may release slots.
  std::recursive_mutex mutex_;
  std::vector<Saved> saved_;
  std::vector<Task> tasks_;
  std::shared_ptr<Filler> filler_;  // while it runs again
  bool is_closed_ = false;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_SEGMENT_INTERNAL_H_
