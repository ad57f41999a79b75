// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_PARAMETER_STORE_INTERNAL_H_
#define AIT_PARALLEL_PARAMETER_STORE_INTERNAL_H_

// The tensors of a model and the flat buffers behind them; their gradients are of
// gradient_store_internal.h. Functions of libtorch may throw, so callers go through CatchAsStatus.

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
  const void* address = nullptr;  // where the parameter lies; null if a unit has it
};

class ParameterStore {
 public:
  /// Moves the trainable parameters into flat buffers, but for those of units (UnitStore).
  static StatusOr<std::unique_ptr<ParameterStore>> Create(NamedTensors parameters,
                                                          const FlatLayout& layout,
                                                          MemoryHandle memory);

  std::vector<Handle>& handles() { return handles_; }
  /// Handles of the parameter; 0 if it is not an owner.
  std::vector<int> handle_counts() const;

  /// The flat buffers, by group: of its elements in order, without those of units.
  const std::vector<Buffer>& buffers() const { return buffers_; }
  /// Where a bucket of no unit begins in the buffer of its group, in elements.
  std::int64_t begin(int bucket) const { return begins_[static_cast<std::size_t>(bucket)]; }
  /// Elements of such a bucket, counted as the layout does.
  Buffer Elements(int bucket, ElementRange range) const;

  /// Tensors that stay where they are: the frozen parameters that belong to no unit, by index.
  const std::vector<int>& frozen() const { return frozen_; }
  const NamedTensors& named() const { return named_; }

  /// **Errors.** FailedPrecondition that names a parameter whose requires_grad, shape or memory has
  /// changed.
  Status CheckUnchanged() const;

  /// Tells autograd that the parameters have changed, so that a graph from before is not used by
  /// mistake.
  void BumpVersions();

 private:
  ParameterStore() = default;
  std::vector<std::int64_t> PlaceBuckets();

  const FlatLayout* layout_ = nullptr;
  NamedTensors named_;
  std::vector<Handle> handles_;
  std::vector<int> frozen_;
  std::vector<Buffer> buffers_;
  std::vector<std::int64_t> begins_;  // by bucket
};

/// The values of a tensor as contiguous host memory: the tensor itself, or a copy to be written
/// back by `WriteBack`.
at::Tensor Contiguous(const at::Tensor& tensor);
void WriteBack(const at::Tensor& contiguous, const at::Tensor& tensor);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_PARAMETER_STORE_INTERNAL_H_
