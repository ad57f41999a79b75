// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_EMPTY_H_
#define AIT_TENSOR_EMPTY_H_

// A tensor in memory of any resource: on a NUMA node, in huge pages, shared with other processes,
// pinned for a device. No libtorch header.
//
//   AIT_ASSIGN_OR_RETURN(at::Tensor weights, Empty({1024, 384}, DType::kFloat32, numa));
//   weights.zero_();
//
// The tensor is as any other; its memory goes back to the resource with the last view of it, and the
// handle it holds keeps the resource alive until then. It cannot grow: `resize_` beyond its size is an
// error of libtorch. All of libtorch's own allocations come from a resource with
// `CpuAllocatorScope` ("cpu_allocator.h").

#include <cstdint>
#include <initializer_list>
#include <span>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/memory/resource.h"

namespace at {
class Tensor;
}  // namespace at

namespace ait::inline v0 {

/// A contiguous CPU tensor of uninitialised elements. No dimension gives a scalar.
/// **Errors.** InvalidArgument: a size below zero, more elements than any machine holds, or memory
/// of a device; those of MemoryHandle::Allocate, with the shape.
StatusOr<at::Tensor> Empty(std::span<const std::int64_t> shape, DType dtype,
                           const MemoryHandle& memory);

StatusOr<at::Tensor> Empty(std::initializer_list<std::int64_t> shape, DType dtype,
                           const MemoryHandle& memory);

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_EMPTY_H_
