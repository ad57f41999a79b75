// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_NORM_H_
#define AIT_OPTIM_NORM_H_

// The global L2 norm of gradients, the check that all are finite, and the clip factor: one pass,
// one answer.
//
// A `SumOfSquares` adds up the squares of blocks of 64 elements: within a block in double and in a
// fixed order, over blocks exactly, in fixed point. Exact addition does not depend on the order, so
// the result has the same bits for any number of threads, for any cut into slices at multiples of
// 64 elements, and, its words being integers whose element-wise sum over ranks is exact too, for
// any number of ranks. It cannot overflow: squares of all finite floats, down to the least
// subnormal, are within its range.
//
//   ait::SumOfSquares sum = ait::ComputeSumOfSquares(owned_gradients);
//   AllReduceSum(sum.words());  // int64: all that a step has to agree on
//   ait::GradientNorm norm = ait::GlobalNorm(sum, 1.0 / tokens);
//   if (!norm.finite) return Skip();
//   bound->BeginStep({.gradient_scale = ait::ClipFactor(norm.value, max_norm) / tokens});

#include <array>
#include <cstdint>
#include <span>

#include "ait/base/simd.h"
#include "ait/optim/executor.h"

namespace ait::inline v0 {

/// An exact sum of non-negative numbers. A value of 176 bytes; zero when made.
class SumOfSquares {
 public:
  /// Elements of a block. Slices that begin and end at multiples of it, counted from the start of
  /// the flat buffer, give sums whose bits do not depend on the slices.
  static constexpr std::int64_t kBlockElements = 64;
  static constexpr int kWords = 22;

  /// Adds what another slice gave.
  void Add(const SumOfSquares& other);

  /// False if an infinity or a NaN was among the values.
  bool finite() const { return words_[kWords - 1] == 0; }
  /// The sum, rounded once to the nearest double; infinity if not finite.
  double value() const;

  /// The representation: sums of different ranks are combined by adding words. Before that, each
  /// word is less than 2^32, so that 2^31 ranks may be added.
  std::span<std::int64_t, kWords> words();

 private:
  friend SumOfSquares ComputeSumOfSquares(std::span<const float>, const Executor&, SimdLevel);
  void Normalize();

  std::array<std::int64_t, kWords> words_{};  // digits of 32 bits, the least first, and one count
};

/// The squares of `values`, whose first element is the first of a block. Padding counts like any
/// value: whoever owns the buffer keeps it zero.
SumOfSquares ComputeSumOfSquares(std::span<const float> values, const Executor& executor = {},
                                 SimdLevel max_simd_level = SimdLevel::kAvx512);

/// What every rank decides by.
struct GradientNorm {
  double value = 0;    // L2 norm of the scaled gradients
  bool finite = true;  // no gradient is infinite or NaN
};

/// The norm of gradients that are multiplied by `scale` in the update.
GradientNorm GlobalNorm(const SumOfSquares& sum, double scale = 1);

/// Factor that brings gradients of this norm to at most `max_norm`, as torch's clip_grad_norm_ has
/// it: min(1, max_norm / (norm + 1e-6)); 1 if `max_norm` is infinite.
double ClipFactor(double norm, double max_norm);

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_NORM_H_
