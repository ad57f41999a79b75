// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_FLOAT16_H_
#define AIT_BASE_FLOAT16_H_

// The two 16-bit floating-point types as storage: conversion to and from float, nothing else.
//
// Arithmetic on them is done in float by whoever needs it (a reduction sums in fp32 and rounds
// once). Conversion rounds to nearest, ties to even, and keeps NaN a NaN; it agrees with libtorch
// bit for bit except for the payload of NaNs.

#include <bit>
#include <cstdint>

#include "ait/base/dtype.h"

namespace ait::inline v0 {

/// bfloat16: 1 sign, 8 exponent and 7 mantissa bits; the upper half of a float.
struct BFloat16 {
  static constexpr DType kDType = DType::kBFloat16;
  std::uint16_t bits = 0;

  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? std::uint16_t{0x7fc0}
                  : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 mantissa bits.
struct Float16 {
  static constexpr DType kDType = DType::kFloat16;
  std::uint16_t bits = 0;

  constexpr Float16() = default;
  constexpr explicit Float16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = sign | 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or more
      bits = sign | 0x7c00u;
    } else if (magnitude <
               0x38800000u) {  // below the least normal number: add a magic number, so that
      const float shifted =
          std::bit_cast<float>(magnitude) + 0.5f;  // the adder rounds at the right bit
      bits = sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
    } else {
      const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
      bits = sign | static_cast<std::uint16_t>((rounded >> 13) - 0x1c000u);
    }
  }
  constexpr explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u)
      return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
  }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace ait::inline v0

#endif  // AIT_BASE_FLOAT16_H_
