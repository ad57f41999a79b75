// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_MATRIX_PRODUCT_H_
#define AIT_OPTIM_MATRIX_PRODUCT_H_

// Products of fp32 matrices whose bits do not depend on threads or SIMD level: each element is the
// sum over k, ascending, by fused multiply-add. Row-major, without gaps.

#include <cstddef>
#include <cstdint>

#include "ait/optim/executor.h"
#include "optim/whole_kernels.h"

namespace ait::inline v0::internal {

enum class Symmetry : std::uint8_t {
  kNone,
  kSymmetric,  // the product is: half of it is computed, the rest mirrored
};

class MatrixProduct {
 public:
  MatrixProduct(const WholeKernels& kernels, const Executor& executor)
      : kernels_(kernels), executor_(executor) {}

  /// Scratch for products of up to rows × k by k × columns.
  static std::size_t ScratchFloats(std::int64_t rows, std::int64_t k, std::int64_t columns);

  /// out ← beta out + alpha left · right, with left [rows, k] and right [k, columns]. `out` may be
  /// one of them; it is not read if beta is 0.
  void Multiply(const float* left, const float* right, std::int64_t rows, std::int64_t k,
                std::int64_t columns, float alpha, float beta, Symmetry symmetry, float* out,
                float* scratch) const;

  /// out ← x · xᵀ, with x [rows, k].
  void Gram(const float* x, std::int64_t rows, std::int64_t k, float* out, float* scratch) const;

 private:
  void PackLeft(const float* left, std::int64_t rows, std::int64_t k, float* packed) const;
  void PackRight(const float* right, std::int64_t k, std::int64_t columns, float* packed) const;
  void MultiplyPacked(const float* left, const float* right, std::int64_t rows, std::int64_t k,
                      std::int64_t columns, float alpha, float beta, Symmetry symmetry,
                      float* out) const;

  const WholeKernels& kernels_;
  const Executor& executor_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_MATRIX_PRODUCT_H_
