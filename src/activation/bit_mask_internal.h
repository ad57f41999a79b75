// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_BIT_MASK_INTERNAL_H_
#define AIT_ACTIVATION_BIT_MASK_INTERNAL_H_

// One bit an element: element i is bit i % 64 of word i / 64. Elements are given as unsigned
// integers of their size, Bits, which is std::uint16_t, std::uint32_t or std::uint64_t.

#include <cstdint>

namespace ait::inline v0::internal {

/// Words of n bits.
constexpr std::int64_t MaskWords(std::int64_t n) { return (n + 63) / 64; }

/// Where the result of a ReLU lets gradients pass: above zero, or NaN. `infinity` is that of the
/// dtype, as bits.
template <typename Bits>
void MaskOfRelu(const Bits* result, Bits infinity, std::uint64_t* mask, std::int64_t n);

/// Where an element is not zero.
template <typename Bits>
void MaskOfNonzero(const Bits* values, std::uint64_t* mask, std::int64_t n);

/// to[i] = bit ? from[i] : 0; may be in place.
template <typename Bits>
void Select(const std::uint64_t* mask, const Bits* from, Bits* to, std::int64_t n);

/// to[i] = bit ? value : 0.
template <typename Bits>
void Expand(const std::uint64_t* mask, Bits value, Bits* to, std::int64_t n);

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_BIT_MASK_INTERNAL_H_
