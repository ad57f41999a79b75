// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_TORCH_H_
#define AIT_TENSOR_TORCH_H_

// Adapters that give tensors: for programs that include libtorch anyway.
//
// **Price.** This header includes ATen/core/Tensor.h and two operators: about 4 CPU-seconds in
// every file that includes it. The rest of ait only forward-declares `at::Tensor`.
//
//   at::Tensor logits = model->forward(Inputs(batch));
//   return LossSum{SumOfCrossEntropy(logits, Targets(batch)), batch.token_count()};

#include <ATen/core/ivalue.h>
// ivalue.h first: the headers below are incomplete without it on some compilers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>

#include "ait/comm/buffer.h"
#include "ait/data/loader/data_batch.h"
#include "ait/data/sample.h"
#include "ait/data/token_batch.h"
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

/// The rows of an array of a batch: a view of the batch's memory, only to be read. It owns nothing,
/// and is valid until the loader's next batch; `.clone()` what is kept longer.
inline at::Tensor TensorOver(const BatchArray& array) {
  const Buffer rows{const_cast<std::byte*>(array.buffer.data()), ElementCount(array.shape),
                    array.dtype};
  return TensorOver(rows, array.shape);
}

/// The same in the memory of GPU `device`, where LoaderOptions::device_copy had it copied. To be used
/// in the stream that the loader was told of.
inline at::Tensor DeviceTensorOver(const BatchArray& array, int device) {
  return at::from_blob(array.device, array.shape,
                       at::TensorOptions(ToTorch(array.dtype))
                           .device(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device))));
}

/// All tokens of the batch, [rows, sequence_length + 1] of int64: a view of the batch's memory,
/// only to be read, as are the two below.
inline at::Tensor Tokens(const TokenBatch& batch) {
  const Buffer tokens{const_cast<std::int64_t*>(batch.tokens.data()),
                      static_cast<std::int64_t>(batch.tokens.size()), DType::kInt64};
  return TensorOver(tokens, {batch.rows(), batch.sequence_length + 1});
}

/// What the model reads, [rows, sequence_length].
inline at::Tensor Inputs(const TokenBatch& batch) {
  return Tokens(batch).slice(1, 0, batch.sequence_length);
}

/// What it is to predict, [rows, sequence_length]: the token after each input.
inline at::Tensor Targets(const TokenBatch& batch) { return Tokens(batch).slice(1, 1); }

/// Sum of the cross entropies of `logits` [..., classes] against `targets` [...], in nats.
inline at::Tensor SumOfCrossEntropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::Sum);
}

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_TORCH_H_
