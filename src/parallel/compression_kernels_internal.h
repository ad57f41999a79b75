// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COMPRESSION_KERNELS_INTERNAL_H_
#define AIT_PARALLEL_COMPRESSION_KERNELS_INTERNAL_H_

// The arithmetic of gradient compression, with the instructions that the processor has.
//
// What all ranks decode must have the same bits on every processor: the order of every sum is
// fixed here, in lanes, and products are never contracted with sums.

#include <cstdint>
#include <span>
#include <vector>

#include "ait/base/float16.h"
#include "optim/block_int8.h"

namespace ait::inline v0::internal::compression {

/// to[i] += from[i].
void AddTo(std::span<float> to, std::span<const float> from);

/// Sum of squares in fp32 lanes, gathered in double every few hundred elements.
double Squares(std::span<const float> values);
/// Dot product, summed in the same way. Equal lengths.
double Dot(std::span<const float> a, std::span<const float> b);
/// to[i] += factor * from[i].
void AddScaled(std::span<float> to, float factor, std::span<const float> from);

// Several vectors of the length of `row`, one after the other, at once: what `Dot` and `AddScaled`
// give, bit for bit, in one pass over `row`.

/// dots[k] = Dot(row, vector k).
void DotMany(std::span<const float> row, std::span<const float> vectors, std::span<double> dots);
/// row[i] += factors[0] * vector 0 [i], then factors[1] * vector 1 [i], …
void AddManyScaled(std::span<float> row, std::span<const float> factors,
                   std::span<const float> vectors);
/// Vector k [i] += factors[k] * row[i].
void AddScaledToMany(std::span<float> vectors, std::span<const float> factors,
                     std::span<const float> row);

/// to[i] = bf16(from[i]); returns the sum of squares of what was lost. Rounds to nearest even.
double RoundToBf16(std::span<const float> from, std::span<BFloat16> to);
void WidenBf16(std::span<const BFloat16> from, std::span<float> to);

using internal::AddDequantised;
using internal::Dequantise;
using internal::LargestMagnitude;
using internal::Quantise;

/// Memory that `SelectLargest` uses again and again.
struct SelectScratch {
  std::vector<std::uint32_t> histogram;
  std::vector<std::uint32_t> candidates;
};
/// The indices of the `count` values of largest magnitude, ascending, `count` ≤ size < 2^32; of
/// equal ones those that come first. NaN is larger than anything. Appends them plus `base`.
void SelectLargest(std::span<const float> values, std::int64_t count, std::uint32_t base,
                   SelectScratch& scratch, std::vector<std::uint32_t>& indices);

/// Vectors of `length`, one after the other: each is made orthogonal to those before it and of
/// norm 1 (modified Gram-Schmidt, twice). One that depends on those before it becomes zero. If any
/// value is not finite, the vector and those after it become NaN.
void Orthonormalise(std::span<float> vectors, std::int64_t length);

}  // namespace ait::inline v0::internal::compression

#endif  // AIT_PARALLEL_COMPRESSION_KERNELS_INTERNAL_H_
