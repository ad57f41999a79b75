// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/transform.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace ait::inline v0 {

std::array<std::uint32_t, 4> internal::Philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

SampleRandom::SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int32_t source,
                           std::int64_t sample)
    : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
      counter_{
          0,
          static_cast<std::uint32_t>(epoch) << 16 ^ (static_cast<std::uint32_t>(source) & 0xFFFFU),
          static_cast<std::uint32_t>(sample),
          static_cast<std::uint32_t>(static_cast<std::uint64_t>(sample) >> 32)} {}

std::uint32_t SampleRandom::Bits() {
  if (used_ == 4) {
    block_ = internal::Philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[static_cast<std::size_t>(used_++)];
}

double SampleRandom::Uniform(double low, double high) {
  const std::uint64_t high_bits = std::uint64_t{Bits()} >> 5;
  const std::uint64_t low_bits = std::uint64_t{Bits()} >> 6;
  const double unit = static_cast<double>(high_bits << 26 | low_bits) * 0x1p-53;
  return low + (high - low) * unit;
}

std::int64_t SampleRandom::Below(std::int64_t size) {
  const auto bound = static_cast<std::uint64_t>(size);
  const std::uint64_t reject_from = ~std::uint64_t{0} - ~std::uint64_t{0} % bound;
  while (true) {
    const std::uint64_t high = Bits();
    const std::uint64_t bits = high << 32 | Bits();
    if (bits < reject_from) return static_cast<std::int64_t>(bits % bound);
  }
}

double SampleRandom::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));  // 1 − [0, 1) is never 0
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

Transform Chain(std::vector<Transform> transforms) {
  return [transforms = std::move(transforms)](Sample& sample, SampleRandom& random) -> Status {
    for (const Transform& transform : transforms) {
      AIT_RETURN_IF_ERROR(transform(sample, random));
    }
    return OkStatus();
  };
}

}  // namespace ait::inline v0
