// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_COMPRESSION_H_
#define AIT_ACTIVATION_COMPRESSION_H_

// Fewer bytes for what waits for backward: ReLU and dropout that keep one bit an element, exactly,
// and a policy that keeps saved tensors as bf16 or int8, with an error.
//
//   x = Relu(linear(x));                                   // 1 bit instead of a tensor
//   x = Dropout(x, 0.1, model->is_training());             // 1 bit instead of a float
//
//   AIT_ASSIGN_OR_RETURN(auto int8, ActivationCompression::Create({.format = SavedFormat::kInt8}));
//   {
//     const SavedTensorScope scope(int8);                  // saved_tensors.h
//     x = mlp->forward(x);                                 // forward itself is exact
//   }
//
//   format     bytes of an fp32   error of a saved element x, in a block whose largest is m
//   kBf16      1/2                2^-8 · |x|
//   kInt8      1/4 + 1/block      m / 254 · (1 + 2^-20); all NaN if one is not finite
//
// The error is that of what backward reads: the loss is exact, gradients are those of slightly
// other activations, with errors of the same relative size where backward multiplies by them
// (Linear, GELU, products). Do not use it where backward takes differences or exponentials of what
// was saved: attention saves logarithms of sums, softmax and norms probabilities and statistics.
// Small tensors stay exact (`at_least`), and an empty scope inside makes an exception:
//
//   const SavedTensorScope exact(nullptr);
//
// **Thread-safety.** All calls may come from any thread.

#include <cstdint>
#include <memory>
#include <vector>

#include "ait/activation/saved_tensors.h"
#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

/// at::relu, bit for bit, with its gradients of all orders. Saves 1 bit an element, which is less
/// where nothing else saves the result: a Linear that follows does, a
/// Dropout, norm or sum does not. On a GPU, and for dtypes that are not fp64, fp32, bf16 or fp16,
/// it is at::relu itself.
at::Tensor Relu(const at::Tensor& input);

/// at::dropout(input, probability, training), bit for bit, with its gradients; it draws the same
/// random numbers. Saves 1 bit an element, where libtorch saves one of the dtype. On a GPU it is
/// at::dropout itself.
at::Tensor Dropout(const at::Tensor& input, double probability, bool training);

enum class SavedFormat : std::uint8_t {
  kBf16,  ///< of fp32 tensors
  kInt8,  ///< of fp32 and bf16 tensors on the CPU, in blocks that share a scale
};

struct ActivationCompressionOptions {
  SavedFormat format = SavedFormat::kBf16;
  std::int64_t block = 256;  ///< elements that share a scale, 32 to 65536
  /// Tensors of fewer bytes stay exact.
  Bytes at_least = KiB(256);
  /// What becomes of the compressed tensor, such as ActivationOffload. Empty: it is kept.
  std::shared_ptr<SavedTensorPolicy> then;

  /// **Errors.** InvalidArgument: a size that is not allowed.
  Status Validate() const;
};

/// Since creation.
struct ActivationCompressionStatistics {
  std::int64_t saved = 0;         ///< tensors that autograd has saved
  std::int64_t compressed = 0;    ///< of them; the rest stayed: small, another dtype, resident
  std::int64_t shared = 0;        ///< of those compressed: were so already
  std::int64_t bytes_before = 0;  ///< of what was compressed, each once
  std::int64_t bytes_after = 0;
};

/// A tensor that is saved by several operations is compressed once. Parameters stay. A change in
/// place before backward is an error of backward, as without compression.
class ActivationCompression final : public SavedTensorPolicy {
 public:
  static StatusOr<std::shared_ptr<ActivationCompression>> Create(
      ActivationCompressionOptions options);
  ~ActivationCompression() override;

  /// Tensors that stay in memory anyway, with all that shares their memory: compressing them would
  /// take memory. Does not keep them alive.
  void KeepExact(const std::vector<at::Tensor>& tensors);

  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override;
  bool TakesParameters() const override { return false; }

  ActivationCompressionStatistics statistics() const;

 private:
  struct Impl;
  explicit ActivationCompression(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_COMPRESSION_H_
