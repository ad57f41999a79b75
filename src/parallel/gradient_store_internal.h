// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_GRADIENT_STORE_INTERNAL_H_
#define AIT_PARALLEL_GRADIENT_STORE_INTERNAL_H_

// Where the gradients of backward go until they are reduced, and where the sums lie afterwards.
//
// Two kinds. **Kept** gradients add up over micro-steps in flat buffers, of which the `.grad` of
// every parameter is a view, and are reduced there. **Streamed** ones go through a small ring of
// bucket buffers, are reduced in every micro-step, and the sums add up in a store that holds all
// elements or this rank's slices alone. Functions of libtorch may throw, so callers go through
// CatchAsStatus.

#include <functional>
#include <memory>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/memory/resource.h"
#include "ait/parallel/flat_layout.h"
#include "parallel/parameter_store_internal.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0::internal {

/// What both kinds are made from.
struct GradientPlan {
  ParameterStore& store;  // outlives the gradients, as the layout does
  const FlatLayout& layout;
  Rank rank;                  // among those that own slices
  bool scattered = false;     // a rank gets the sums of its slice alone
  std::vector<DType> dtypes;  // by group: in which gradients add up
  std::vector<DType> wire;    // by group: in which they travel
  MemoryHandle memory;        // of what is reduced in place
};

class GradientStore {
 public:
  virtual ~GradientStore() = default;

  // What backward and the user do to gradients.

  /// Starts a step: what the buffers hold is of the past, and as good as zero. What the user put in
  /// the place of a view is dropped.
  virtual void Forget() = 0;

  /// Starts a micro-step. Kept: makes `.grad` of every handle the view again; a gradient that the
  /// user took away counts as zero, and one that was put in its place as the gradient. Streamed:
  /// refuses one that was put there.
  /// **Errors.** of this and the next three: InvalidArgument that names a parameter in the place of
  /// whose gradient is one of another shape; FailedPrecondition that names one where there is none
  /// to replace.
  virtual Status BeginMicroStep() = 0;

  /// Adds what backward brings for handle `h`.
  virtual Status Accumulate(std::size_t h, const at::Tensor& gradient) = 0;

  /// Backward has ended: gradients that did not come are zero. Goes on after an error, and returns
  /// the first.
  virtual Status Complete() = 0;

  /// Takes over what the user has made of the sums. A tensor that replaces the gradient of a tied
  /// parameter is the gradient of all its tensors; of several, the last.
  virtual Status Adopt() = 0;

  /// Puts back the views that the user has set to none, of parameters in reduction.
  /// **Errors.** FailedPrecondition that names a parameter whose gradient was replaced meanwhile.
  virtual Status KeepReduced(const std::function<bool(int owner)>& in_reduction) = 0;

  // What the reducer does, for one bucket after the other.

  /// All gradients of bucket `b` are there: what is to be reduced. **Errors.** Those of the memory.
  virtual StatusOr<Buffer> Wire(int b) = 0;
  /// Where this rank's slice of the sum goes, if sums are scattered; of the dtype of the wire.
  virtual Buffer Output(int b, const Buffer& wire) = 0;
  /// Whether what comes to `Output` next is what `Owned` will be.
  virtual bool IsFinal(int b) const = 0;
  /// Bucket `b` is reduced.
  virtual void Reduced(int b) = 0;

  // The sums.

  /// This rank's slice of bucket `b`.
  virtual Buffer Owned(int b) const = 0;
  /// All elements of a group; only where sums are not scattered.
  virtual Buffer Whole(std::size_t group) const = 0;

  /// What there is: of sums (or kept gradients), and of buckets in flight.
  virtual std::int64_t gradient_bytes() const = 0;
  virtual std::int64_t bucket_bytes() const = 0;
};

StatusOr<std::unique_ptr<GradientStore>> MakeKeptGradients(GradientPlan plan);

/// `make_room` waits until one of the reductions in flight has ended, and returns false if there is
/// none. `packed`: sums of this rank's slices alone are kept, and there is no `.grad`.
StatusOr<std::unique_ptr<GradientStore>> MakeStreamedGradients(
    GradientPlan plan, bool packed, std::function<StatusOr<bool>()> make_room);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_GRADIENT_STORE_INTERNAL_H_
