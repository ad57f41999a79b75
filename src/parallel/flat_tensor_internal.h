// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_FLAT_TENSOR_INTERNAL_H_
#define AIT_PARALLEL_FLAT_TENSOR_INTERNAL_H_

// Flat buffers as tensors: what parameters and gradients are views of.

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/memory/resource.h"
#include "ait/parallel/flat_layout.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0::internal {

/// A flat buffer of zeros, which lives as long as a tensor looks into it. `what` is for messages.
/// An empty `memory` is a heap.
StatusOr<at::Tensor> MakeFlat(std::int64_t count, DType dtype, const MemoryHandle& memory,
                              std::string_view what);

/// The elements of a tensor that `MakeFlat` has made.
Buffer BufferOf(const at::Tensor& flat, DType dtype);

/// The parameter at `slot`, with the sizes and strides of `info`, in a flat buffer.
at::Tensor ViewOf(const at::Tensor& flat, const ParameterInfo& info, const FlatSlot& slot);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_FLAT_TENSOR_INTERNAL_H_
