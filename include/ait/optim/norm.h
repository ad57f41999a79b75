// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_NORM_H_
#define AIT_OPTIM_NORM_H_

// Norms of gradients, the check that all are finite, and the clip factor: one pass, one answer.
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
//
// A `NormSum` is the same for the norm of any p ≥ 1, √[p](Σ |x|^p), and for the largest magnitude
// (p infinite). The largest magnitude is exact as well. Other sums than that of squares are not:
// they are compensated, and their order is fixed. Blocks of 64 elements are added in double, eight
// lanes and a tree; blocks in order, chunks of 64 blocks in order, slices in the order of `Add`,
// ranks in rank order, all with the rounding error of each addition kept (Knuth's TwoSum). So
// threads and SIMD levels do not change them, nor does the ZeRO stage of one layout; another world
// size or bucket size may, in the last places of a double.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ait/base/simd.h"
#include "ait/base/status.h"
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

/// Gradients of which one norm is made.
enum class NormScope : std::uint8_t {
  kAll,       // all together
  kEachGroup  // those of each parameter group of the optimizer, and those in no group
};

struct NormOptions {
  double p = 2;  // ≥ 1, or infinity
  NormScope scope = NormScope::kAll;
  /// Patterns over the names of parameters whose gradients do not count on this rank, because
  /// another rank counts the same: under model parallelism, duplicates are counted once. Whether
  /// they are finite counts everywhere.
  std::vector<std::string> not_counted;

  /// **Errors.** InvalidArgument that names the option and its value.
  Status Validate() const;
  bool operator==(const NormOptions&) const = default;
};

/// What becomes a p-norm. A value.
class NormSum {
 public:
  /// `p` that `NormOptions::Validate` accepts.
  explicit NormSum(double p = 2) : p_(p) {}

  /// Adds |x|^p of values; for p = 2, the first is the first of a block of `SumOfSquares`.
  void Add(std::span<const float> values, const Executor& executor = {},
           SimdLevel max_simd_level = SimdLevel::kAvx512);
  void Add(const NormSum& other);

  /// False if an infinity or a NaN was among the values.
  bool finite() const { return p_ == 2 ? squares_.finite() : finite_; }
  /// The norm of the values multiplied by `scale`; infinity only if not finite: above p = 4 the
  /// powers are those of magnitudes divided by the largest one, and stay in the range of double.
  double norm(double scale = 1) const;

  /// The representation, for its way to other ranks: combined by `AddWords` in rank order.
  static int WordsOf(double p);
  void AppendWords(std::vector<std::int64_t>& words) const;
  void AddWords(std::span<const std::int64_t> words);

 private:
  void AddTerm(double scale, double sum, double error);

  double p_;
  SumOfSquares squares_;  // p = 2
  double scale_ = 1;      // what magnitudes are divided by before they are raised to p
  double sum_ = 0;        // of the powers, or the largest magnitude
  double sum_error_ = 0;  // what rounding has taken off it
  bool finite_ = true;
};

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
