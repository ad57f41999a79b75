// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_MIX_INTERNAL_H_
#define AIT_DATA_MIX_INTERNAL_H_

// The one mixing function of this component. Orders and digests rest on it: it never changes.

#include <cstdint>

namespace ait::inline v0 {
namespace internal {

/// The golden ratio times 2^64, the increment of SplitMix64.
inline constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15u;

/// The output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014, with the constants of Stafford's variant 13): a permutation of 64-bit words.
constexpr std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The digest of a sequence of words, one word further.
constexpr std::uint64_t Fold(std::uint64_t digest, std::uint64_t word) {
  return Mix((digest ^ word) + kGamma);
}

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_MIX_INTERNAL_H_
