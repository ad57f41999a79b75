// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "optim/kernels.h"
#include "optim/partition.h"

namespace ait::inline v0 {
namespace {

// Digit i of 32 bits weighs 2^(32 i − 352). A block of 64 squares is between 2^−298, of which the
// double's last bit weighs 2^−350, and 2^262; 21 digits reach to 2^320, above 2^57 of the largest
// blocks.
constexpr int kDigits = SumOfSquares::kWords - 1;
constexpr int kLeastExponent = -352;
constexpr int kExponentBias = 1075;  // of a double seen as a 53-bit integer times a power of two
constexpr std::int64_t kDigitMask = 0xffffffff;

// Adds without carrying; each word grows by less than 2^32.
void AddToWords(std::int64_t* words, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto exponent = static_cast<int>(bits >> 52);
  if (exponent == 0) return;  // zero: squares of floats are never subnormal doubles
  if (exponent >= 0x7ff) {    // infinity or NaN, of any sign
    words[kDigits] += 1;
    return;
  }
  const std::uint64_t mantissa = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  const int position = exponent - kExponentBias - kLeastExponent;
  const int shift = position & 31;
  std::int64_t* word = words + (position >> 5);
  word[0] += static_cast<std::int64_t>((mantissa << shift) & kDigitMask);
  word[1] += static_cast<std::int64_t>((mantissa >> (32 - shift)) & kDigitMask);
  word[2] += static_cast<std::int64_t>((mantissa >> (63 - shift)) >> 1);
}

}  // namespace

void SumOfSquares::Add(const SumOfSquares& other) {
  for (int i = 0; i < kWords; ++i) words_[i] += other.words_[i];
  Normalize();
}

std::span<std::int64_t, SumOfSquares::kWords> SumOfSquares::words() { return words_; }

void SumOfSquares::Normalize() {
  for (int i = 0; i + 1 < kDigits; ++i) {
    words_[i + 1] += words_[i] >> 32;
    words_[i] &= kDigitMask;
  }
  words_[kDigits] = words_[kDigits] != 0;
}

double SumOfSquares::value() const {
  if (!finite()) return std::numeric_limits<double>::infinity();
  SumOfSquares sum = *this;
  sum.Normalize();
  int top = kDigits - 1;
  while (top > 1 && sum.words_[top] == 0) --top;
  // The leading 64 bits, the last of them set if anything below is: rounds to double as the whole
  // would.
  const auto digit = [&](int i) { return i < 0 ? 0 : static_cast<std::uint64_t>(sum.words_[i]); };
  std::uint64_t head = digit(top) << 32 | digit(top - 1);
  if (head == 0) return 0;
  const int shift = std::countl_zero(head);
  std::uint64_t below = digit(top - 2);
  if (shift > 0) head = head << shift | below << 32 >> (64 - shift);
  below = shift > 31 ? 0 : below << (32 + shift);
  for (int i = top - 3; i >= 0; --i) below |= digit(i);
  if (below != 0) head |= 1;
  return std::ldexp(static_cast<double>(head), 32 * (top - 1) + kLeastExponent - shift);
}

SumOfSquares ComputeSumOfSquares(std::span<const float> values, const Executor& executor,
                                 SimdLevel max_simd_level) {
  constexpr std::int64_t kBlock = SumOfSquares::kBlockElements;
  constexpr std::int64_t kBatch = 64;  // blocks whose sums are kept aside
  const internal::Kernels& kernels = internal::KernelsFor(max_simd_level);
  SumOfSquares total;
  std::mutex mutex;
  const ElementRange all{0, static_cast<std::int64_t>(values.size())};
  internal::ForEachPart(executor, all, [&](ElementRange part) {
    SumOfSquares sum;
    double sums[kBatch];
    std::int64_t i = part.begin;
    while (i + kBlock <= part.end) {
      const std::int64_t blocks = std::min(kBatch, (part.end - i) / kBlock);
      kernels.sum_of_squares(values.data() + i, blocks, sums);
      for (std::int64_t b = 0; b < blocks; ++b) AddToWords(sum.words_.data(), sums[b]);
      i += blocks * kBlock;
    }
    if (i < part.end) {
      float last[kBlock] = {};
      std::copy(values.begin() + i, values.begin() + part.end, last);
      kernels.sum_of_squares(last, 1, sums);
      AddToWords(sum.words_.data(), sums[0]);
    }
    const std::lock_guard lock(mutex);
    total.Add(sum);
  });
  return total;
}

GradientNorm GlobalNorm(const SumOfSquares& sum, double scale) {
  return {.value = std::abs(scale) * std::sqrt(sum.value()), .finite = sum.finite()};
}

double ClipFactor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

}  // namespace ait::inline v0
