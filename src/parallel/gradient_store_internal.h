// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_GRADIENT_STORE_INTERNAL_H_
#define AIT_PARALLEL_GRADIENT_STORE_INTERNAL_H_

// Where the gradients of backward go: flat buffers, of which the `.grad` of every parameter is a
// view. Functions of libtorch may throw, so callers go through CatchAsStatus.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/memory/resource.h"
#include "ait/parallel/flat_layout.h"
#include "parallel/parameter_store_internal.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0::internal {

class GradientStore {
 public:
  /// Gives the parameters of `store`, which outlives this, their gradients, all zero.
  static StatusOr<std::unique_ptr<GradientStore>> Create(ParameterStore& store,
                                                         const FlatLayout& layout,
                                                         MemoryHandle memory);

  /// The flat buffers, by group.
  const std::vector<Buffer>& buffers() const { return buffers_; }

  /// Starts a step: what the buffers hold is of the past, and as good as zero. What the user put in
  /// the place of a view is dropped.
  void Forget();

  /// Starts a micro-step: makes `.grad` of every handle the view again. A gradient that the user
  /// took away counts as zero, and one that was put in its place as the gradient.
  /// **Errors.** of this and the next three: InvalidArgument that names a parameter in the place of
  /// whose gradient is one of another shape.
  Status BeginMicroStep();

  /// Adds what backward brings for handle `h`. The first of a step is copied, so that nothing has
  /// to be zeroed in between.
  Status Accumulate(std::size_t h, const at::Tensor& gradient);

  /// Makes the buffers whole: gradients that did not come are zero. Goes on after an error, and
  /// returns the first.
  Status Complete();

  /// Takes over what the user has made of whole gradients. A tensor that replaces the gradient of a
  /// tied parameter is the gradient of all its tensors; of several, the last.
  Status Adopt();

  /// Puts back the views that the user has set to none, of parameters in reduction.
  /// **Errors.** FailedPrecondition that names a parameter whose gradient was replaced meanwhile.
  Status KeepReduced(const std::function<bool(int owner)>& in_reduction);

 private:
  GradientStore(ParameterStore& store, const FlatLayout& layout) : store_(store), layout_(layout) {}
  Status RestoreView(std::size_t h);
  const std::string& NameOf(std::size_t h) const;
  std::size_t OwnerOf(std::size_t h) const {
    return static_cast<std::size_t>(store_.handles()[h].owner);
  }

  ParameterStore& store_;
  const FlatLayout& layout_;
  std::vector<at::Tensor> flat_;
  std::vector<Buffer> buffers_;
  std::vector<at::Tensor> views_;  // by handle: what `.grad` is
  std::vector<char> current_;      // by parameter: its slot holds a gradient of this step
  std::vector<char> touched_;      // by parameter: it was written in this micro-step
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_GRADIENT_STORE_INTERNAL_H_
