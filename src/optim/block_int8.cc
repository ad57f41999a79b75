// SPDX-License-Identifier: Apache-2.0
#include "optim/block_int8.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "base/simd_kernel.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffu;
constexpr std::uint32_t kInfinity = 0x7f800000u;
constexpr float kMaxCode = 127;

std::uint32_t Magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitude; }

AIT_INLINE float LargestMagnitudeBody(std::span<const float> values) {
  std::uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & kMagnitude);
  }
  return std::bit_cast<float>(largest);
}

template <bool kWithError>
AIT_INLINE float QuantiseBlock(std::span<const float> values, std::span<std::int8_t> codes,
                               std::span<float> error) {
  const float largest = LargestMagnitudeBody(values);
  if (Magnitude(largest) >= kInfinity) {
    std::fill(codes.begin(), codes.end(), std::int8_t{0});
    if (kWithError) std::fill(error.begin(), error.end(), 0.0f);
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (largest < kMaxCode * std::numeric_limits<float>::min()) {
    std::fill(codes.begin(), codes.end(), std::int8_t{0});
    if (kWithError) std::copy(values.begin(), values.end(), error.begin());
    return 0;
  }
  const float scale = largest / kMaxCode;
  const float inverse = kMaxCode / largest;
  constexpr float kRound = 0x1.8p23f;  // adding it leaves no fraction: to nearest even
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    const float code = (value * inverse + kRound) - kRound;
    codes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(code));
    if constexpr (kWithError) error[i] = value - code * scale;
  }
  return scale;
}

AIT_INLINE float QuantiseBody(std::span<const float> values, std::span<std::int8_t> codes,
                              std::span<float> error) {
  return error.empty() ? QuantiseBlock<false>(values, codes, error)
                       : QuantiseBlock<true>(values, codes, error);
}

AIT_INLINE void DequantiseBody(std::span<const std::int8_t> codes, float scale,
                               std::span<float> to) {
  for (std::size_t i = 0; i < codes.size(); ++i) to[i] = static_cast<float>(codes[i]) * scale;
}

AIT_INLINE void AddDequantisedBody(std::span<const std::int8_t> codes, float scale,
                                   std::span<float> to) {
  for (std::size_t i = 0; i < codes.size(); ++i) to[i] += static_cast<float>(codes[i]) * scale;
}

}  // namespace

AIT_KERNEL(float, LargestMagnitude, (std::span<const float> values), (values))
AIT_KERNEL(float, Quantise,
           (std::span<const float> values, std::span<std::int8_t> codes, std::span<float> error),
           (values, codes, error))
AIT_KERNEL(void, Dequantise, (std::span<const std::int8_t> codes, float scale, std::span<float> to),
           (codes, scale, to))
AIT_KERNEL(void, AddDequantised,
           (std::span<const std::int8_t> codes, float scale, std::span<float> to),
           (codes, scale, to))

}  // namespace ait::inline v0::internal
