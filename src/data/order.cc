// SPDX-License-Identifier: Apache-2.0
#include "ait/data/order.h"

#include <algorithm>
#include <bit>

#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace {

constexpr int kMinBits = 8;

}  // namespace

// A Feistel network over the least number of bits that holds size-1, at least 8, split into two
// halves (the upper one a bit shorter if the number is odd), with cycle walking: a result outside
// of the range is put in again. Black and Rogaway, "Ciphers with arbitrary finite domains" (2002),
// methods 2 and 3. From 128 items on the domain is less than twice the size, so it takes less than
// two turns on average. Below 8 bits a Feistel network cannot reach all permutations equally often.

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
    : size_(static_cast<std::uint64_t>(size)) {
  const int bits = std::max<int>(kMinBits, std::bit_width(size_ - 1));
  low_bits_ = bits - bits / 2;
  low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
  high_mask_ = (std::uint64_t{1} << (bits / 2)) - 1;
  // The seed is mixed before the epoch joins, so that (seed+1, epoch) is not (seed, epoch+1).
  const std::uint64_t base =
      internal::Mix(internal::Mix(seed + internal::kGamma) + static_cast<std::uint64_t>(epoch));
  for (int round = 0; round < kRounds; ++round) {
    keys_[round] = internal::Mix(base + static_cast<std::uint64_t>(round + 1) * internal::kGamma);
  }
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  auto x = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t high = x >> low_bits_;
    std::uint64_t low = x & low_mask_;
    for (int round = 0; round < kRounds; round += 2) {
      high ^= internal::Mix(keys_[round] ^ low) & high_mask_;
      low ^= internal::Mix(keys_[round + 1] ^ high) & low_mask_;
    }
    x = (high << low_bits_) | low;
  } while (x >= size_);
  return static_cast<std::int64_t>(x);
}

}  // namespace ait::inline v0
