// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_TORCH_H_
#define AIT_TENSOR_TORCH_H_

// Adapters that give tensors: for programs that include libtorch anyway.
//
// **Price.** This header includes ATen/core/Tensor.h and one factory: about 3 CPU-seconds in every
// file that includes it. The rest of ait only forward-declares `at::Tensor`.
//
//   at::Tensor tokens = TensorOver(View(batch.tokens), {batch.rows(), batch.sequence_length + 1});

#include <ATen/core/ivalue.h>
// ivalue.h first: the headers below are incomplete without it on some compilers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "ait/comm/buffer.h"
#include "ait/tensor/dtype.h"
#include "ait/tensor/view.h"

namespace ait::inline v0 {

/// A tensor over the elements of `buffer`, of shape `sizes` (their product is at most
/// `buffer.count`). It owns nothing: the memory outlives the tensor and all views of it.
inline at::Tensor TensorOver(const Buffer& buffer, at::IntArrayRef sizes) {
  return at::from_blob(buffer.data, sizes, at::TensorOptions(ToTorch(buffer.dtype)));
}

/// The same, of one dimension.
inline at::Tensor TensorOver(const Buffer& buffer) { return TensorOver(buffer, {buffer.count}); }

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_TORCH_H_
