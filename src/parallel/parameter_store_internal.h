// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_PARAMETER_STORE_INTERNAL_H_
#define AIT_PARALLEL_PARAMETER_STORE_INTERNAL_H_

// The tensors of a model and the flat buffers behind them. Everything that touches a tensor, but
// for the hooks, is here; functions of libtorch may throw, so callers go through CatchAsStatus.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/memory/resource.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/named_tensor.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0::internal {

/// What the layout must know of every parameter: finds tied ones by their memory.
/// **Errors.** InvalidArgument or Unimplemented, naming the parameter: undefined, sparse, not in
/// host memory, not a leaf, of a dtype that ait does not carry, or overlapping another one in part.
StatusOr<std::vector<ParameterInfo>> InspectParameters(const NamedTensors& parameters);

/// A tensor that requires a gradient. Tied parameters that are different tensors over the same
/// memory are several handles of one owner; one tensor under two names is one handle.
struct Handle {
  at::Tensor tensor;
  int owner = 0;                  // index of the parameter that has the slot
  at::Tensor gradient;            // the view of the flat buffer that `.grad` is
  const void* address = nullptr;  // where the parameter lies
};

class ParameterStore {
 public:
  /// Moves the trainable parameters into flat buffers and gives them their gradients, all zero.
  static StatusOr<std::unique_ptr<ParameterStore>> Create(NamedTensors parameters,
                                                          const FlatLayout& layout,
                                                          MemoryHandle memory);

  std::vector<Handle>& handles() { return handles_; }
  /// Handles of the parameter; 0 if it is not an owner.
  std::vector<int> handle_counts() const;

  /// The flat buffers, by group.
  const std::vector<Buffer>& parameters() const { return parameter_buffers_; }
  const std::vector<Buffer>& gradients() const { return gradient_buffers_; }

  /// Tensors that stay where they are: the frozen parameters, by index.
  const std::vector<int>& frozen() const { return frozen_; }
  const NamedTensors& named() const { return named_; }

  /// **Errors.** FailedPrecondition that names a parameter whose requires_grad, shape or memory has
  /// changed.
  Status CheckUnchanged() const;

  /// Starts a step: what the gradient buffers hold is of the past, and as good as zero. What the
  /// user put in the place of a view is dropped.
  void ForgetGradients();

  /// Starts a micro-step: makes `.grad` of every handle the view again. A gradient that the user
  /// took away counts as zero, and one that was put in its place as the gradient.
  /// **Errors.** of this and the next three: InvalidArgument that names a parameter in the place of
  /// whose gradient is one of another shape.
  Status BeginMicroStep();

  /// Adds what backward brings for one handle. The first of a step is copied, so that nothing has
  /// to be zeroed in between.
  Status Accumulate(Handle& handle, const at::Tensor& gradient);

  /// Makes the buffers whole: gradients that did not come are zero. Goes on after an error, and
  /// returns the first.
  Status CompleteGradients();

  /// Takes over what the user has made of whole gradients. A tensor that replaces the gradient of a
  /// tied parameter is the gradient of all its tensors; of several, the last.
  Status AdoptGradients();

  /// Puts back the views that the user has set to none, of parameters in reduction.
  /// **Errors.** FailedPrecondition that names a parameter whose gradient was replaced meanwhile.
  Status KeepReduced(const std::function<bool(int owner)>& in_reduction);

  /// Tells autograd that the parameters have changed, so that a graph from before is not used by
  /// mistake.
  void BumpVersions();

 private:
  ParameterStore() = default;
  Status RestoreView(Handle& handle);
  const std::string& NameOf(const Handle& handle) const;

  const FlatLayout* layout_ = nullptr;
  NamedTensors named_;
  std::vector<Handle> handles_;
  std::vector<int> frozen_;
  std::vector<at::Tensor> flat_gradients_;
  std::vector<char> current_;  // by parameter: its slot holds a gradient of this step
  std::vector<char> touched_;  // by parameter: it was written in this micro-step
  std::vector<Buffer> parameter_buffers_;
  std::vector<Buffer> gradient_buffers_;
};

/// The values of a tensor as contiguous host memory: the tensor itself, or a copy to be written
/// back by `WriteBack`.
at::Tensor Contiguous(const at::Tensor& tensor);
void WriteBack(const at::Tensor& contiguous, const at::Tensor& tensor);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_PARAMETER_STORE_INTERNAL_H_
