// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_BUCKET_RING_INTERNAL_H_
#define AIT_PARALLEL_BUCKET_RING_INTERNAL_H_

// A few buffers that hold one bucket each, from its first gradient until it is reduced.
//
// Bucket b has its place in buffer b mod kDepth, so that those buffers, made at the start, are
// enough as long as backward fills the buckets in order. It takes another one that is free and large
// enough if that is in use; where all are, a reduction is waited for; and if none is in flight, since
// backward has begun many buckets and ended none, the ring grows. It keeps what it has grown to.

#include <functional>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/memory/resource.h"
#include "ait/parallel/flat_layout.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0::internal {

class BucketRing {
 public:
  /// One bucket is filled while another one is reduced.
  static constexpr std::size_t kDepth = 2;

  /// `dtypes` are those of the gradients, by group. `make_room` waits until one of the reductions in
  /// flight has ended, and returns false if there is none.
  static StatusOr<BucketRing> Create(const FlatLayout& layout, std::vector<DType> dtypes,
                                     MemoryHandle memory,
                                     std::function<StatusOr<bool>()> make_room);

  /// Gives bucket `b` a buffer. **Blocks.** Until there is one. **Errors.** Those of the memory and
  /// of the reductions.
  Status Open(int b);
  bool IsOpen(int b) const { return place_[static_cast<std::size_t>(b)] >= 0; }
  /// The buffer is free again.
  void Close(int b);

  /// Of an open bucket.
  Buffer buffer(int b) const;
  /// The same as a tensor, and the number of the place that it lies in.
  const at::Tensor& tensor(int b) const;
  int place(int b) const { return place_[static_cast<std::size_t>(b)]; }

  std::int64_t bytes() const;

 private:
  struct Slot {
    at::Tensor memory;                 // bytes
    std::vector<at::Tensor> of_group;  // the same in the dtype of each group
    int bucket = -1;
  };
  BucketRing(const FlatLayout& layout, std::vector<DType> dtypes, MemoryHandle memory,
             std::function<StatusOr<bool>()> make_room);
  Status Grow(std::int64_t bytes);
  int Free(int b) const;

  const FlatLayout* layout_;
  std::vector<DType> dtypes_;
  MemoryHandle memory_;
  std::function<StatusOr<bool>()> make_room_;
  std::vector<Slot> slots_;
  std::vector<int> place_;  // by bucket: the slot that holds it, or -1
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_BUCKET_RING_INTERNAL_H_
