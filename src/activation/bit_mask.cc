// SPDX-License-Identifier: Apache-2.0
#include "activation/bit_mask_internal.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/simd_kernel.h"

namespace ait::inline v0::internal {
namespace {

constexpr int kWord = 64;

// The lowest bits of eight bytes, as one byte.
AIT_INLINE std::uint64_t Gather(const std::uint8_t* bytes) {
  std::uint64_t lanes = 0;
  std::memcpy(&lanes, bytes, sizeof(lanes));
  return ((lanes & 0x0101010101010101u) * 0x0102040810204080u) >> 56;
}

template <typename Bits, typename Bit>
AIT_INLINE std::uint64_t PackWord(const Bits* values, Bit bit) {
  std::uint8_t bytes[kWord];
  for (int j = 0; j < kWord; ++j) bytes[j] = bit(values[j]);
  std::uint64_t word = 0;
  for (int j = 0; j < kWord; j += 8) word |= Gather(bytes + j) << j;
  return word;
}

template <typename Bits, typename Bit>
AIT_INLINE void Pack(const Bits* values, std::uint64_t* mask, std::int64_t n, Bit bit) {
  std::int64_t i = 0;
  for (; i + kWord <= n; i += kWord) mask[i / kWord] = PackWord(values + i, bit);
  if (i == n) return;
  Bits rest[kWord] = {};
  std::copy(values + i, values + n, rest);
  mask[i / kWord] = PackWord(rest, bit);
}

// All ones where the bit is set. Bits of a byte are spread by a multiplication-free compare.
template <typename Bits>
AIT_INLINE void SpreadWord(std::uint64_t word, Bits* ones) {
  for (int part = 0; part < kWord / 8; ++part) {
    const auto byte = static_cast<Bits>((word >> (8 * part)) & 0xffu);
    for (int j = 0; j < 8; ++j) {
      const auto single = static_cast<Bits>(Bits{1} << j);
      ones[8 * part + j] = static_cast<Bits>((byte & single) != 0 ? ~Bits{0} : Bits{0});
    }
  }
}

template <typename Bits>
AIT_INLINE void MaskOfReluBody(const Bits* result, Bits infinity, std::uint64_t* mask,
                               std::int64_t n) {
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (std::numeric_limits<Bits>::digits - 1));
  Pack(result, mask, n, [=](Bits value) __attribute__((always_inline)) {
    const auto magnitude = static_cast<Bits>(value & static_cast<Bits>(~kSign));
    const bool positive = value != 0 && value < kSign;
    return static_cast<std::uint8_t>(positive | (magnitude > infinity));
  });
}

template <typename Bits>
AIT_INLINE void MaskOfNonzeroBody(const Bits* values, std::uint64_t* mask, std::int64_t n) {
  Pack(values, mask, n, [](Bits value) __attribute__((always_inline)) {
    return static_cast<std::uint8_t>(value != 0);
  });
}

template <typename Bits>
AIT_INLINE void SelectBody(const std::uint64_t* mask, const Bits* from, Bits* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kWord) {
    Bits ones[kWord];
    SpreadWord(mask[i / kWord], ones);
    if (i + kWord <= n) {
      for (int j = 0; j < kWord; ++j) to[i + j] = from[i + j] & ones[j];
    } else {
      for (int j = 0; j < n - i; ++j) to[i + j] = from[i + j] & ones[j];
    }
  }
}

template <typename Bits>
AIT_INLINE void ExpandBody(const std::uint64_t* mask, Bits value, Bits* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kWord) {
    Bits ones[kWord];
    SpreadWord(mask[i / kWord], ones);
    if (i + kWord <= n) {
      for (int j = 0; j < kWord; ++j) to[i + j] = value & ones[j];
    } else {
      for (int j = 0; j < n - i; ++j) to[i + j] = value & ones[j];
    }
  }
}

}  // namespace

// A function for each kernel and size of element, chosen by the processor.
#define AIT_MASK_KERNELS(Bits, suffix)                                                            \
  namespace {                                                                                     \
  AIT_INLINE void Relu##suffix##Body(const Bits* a, Bits b, std::uint64_t* c, std::int64_t n) {   \
    MaskOfReluBody(a, b, c, n);                                                                   \
  }                                                                                               \
  AIT_INLINE void Nonzero##suffix##Body(const Bits* a, std::uint64_t* b, std::int64_t n) {        \
    MaskOfNonzeroBody(a, b, n);                                                                   \
  }                                                                                               \
  AIT_INLINE void Select##suffix##Body(const std::uint64_t* a, const Bits* b, Bits* c,            \
                                       std::int64_t n) {                                          \
    SelectBody(a, b, c, n);                                                                       \
  }                                                                                               \
  AIT_INLINE void Expand##suffix##Body(const std::uint64_t* a, Bits b, Bits* c, std::int64_t n) { \
    ExpandBody(a, b, c, n);                                                                       \
  }                                                                                               \
  AIT_KERNEL(void, Relu##suffix, (const Bits* a, Bits b, std::uint64_t* c, std::int64_t n),       \
             (a, b, c, n))                                                                        \
  AIT_KERNEL(void, Nonzero##suffix, (const Bits* a, std::uint64_t* b, std::int64_t n), (a, b, n)) \
  AIT_KERNEL(void, Select##suffix,                                                                \
             (const std::uint64_t* a, const Bits* b, Bits* c, std::int64_t n), (a, b, c, n))      \
  AIT_KERNEL(void, Expand##suffix, (const std::uint64_t* a, Bits b, Bits* c, std::int64_t n),     \
             (a, b, c, n))                                                                        \
  }                                                                                               \
  template <>                                                                                     \
  void MaskOfRelu(const Bits* a, Bits b, std::uint64_t* c, std::int64_t n) {                      \
    Relu##suffix(a, b, c, n);                                                                     \
  }                                                                                               \
  template <>                                                                                     \
  void MaskOfNonzero(const Bits* a, std::uint64_t* b, std::int64_t n) {                           \
    Nonzero##suffix(a, b, n);                                                                     \
  }                                                                                               \
  template <>                                                                                     \
  void Select(const std::uint64_t* a, const Bits* b, Bits* c, std::int64_t n) {                   \
    Select##suffix(a, b, c, n);                                                                   \
  }                                                                                               \
  template <>                                                                                     \
  void Expand(const std::uint64_t* a, Bits b, Bits* c, std::int64_t n) {                          \
    Expand##suffix(a, b, c, n);                                                                   \
  }

AIT_MASK_KERNELS(std::uint16_t, 16)
AIT_MASK_KERNELS(std::uint32_t, 32)
AIT_MASK_KERNELS(std::uint64_t, 64)

}  // namespace ait::inline v0::internal
