// SPDX-License-Identifier: Apache-2.0
#include "comm/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace ait {
namespace {

using internal::FromFloat;
using internal::ToFloat;

/// All 65,536 halves at once, and at lengths that leave a rest.
template <typename Half>
void CheckEveryHalf() {
  std::vector<Half> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  for (const std::size_t count : {std::size_t{0}, std::size_t{7}, std::size_t{13}, halves.size()}) {
    std::vector<float> floats(count);
    ToFloat(halves.data() + (halves.size() - count), floats.data(),
            static_cast<std::int64_t>(count));
    std::vector<Half> back(count);
    FromFloat(floats.data(), back.data(), static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      const Half half = halves[halves.size() - count + i];
      const float value = static_cast<float>(half);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(floats[i]) && std::isnan(static_cast<float>(back[i])));
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(value));
      ASSERT_EQ(back[i].bits, half.bits);
    }
  }
}

TEST(ToFloat, IsThatOfTheScalarForEveryHalf) {
  CheckEveryHalf<Float16>();
  CheckEveryHalf<BFloat16>();
}

/// Floats of every exponent, and those half-way between two halves.
template <typename Half>
void CheckRounding() {
  std::mt19937 random(7);
  std::vector<float> floats;
  for (int i = 0; i < 100000; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    Half low;
    Half high;
    low.bits = static_cast<std::uint16_t>(bits);
    high.bits = static_cast<std::uint16_t>(bits + 1);
    floats.push_back((static_cast<float>(low) + static_cast<float>(high)) / 2);
  }
  std::vector<Half> halves(floats.size());
  FromFloat(floats.data(), halves.data(), static_cast<std::int64_t>(floats.size()));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i])) {
      ASSERT_TRUE(std::isnan(static_cast<float>(halves[i])));
    } else {
      ASSERT_EQ(halves[i].bits, static_cast<Half>(floats[i]).bits) << floats[i];
    }
  }
}

TEST(FromFloat, RoundsLikeTheScalar) {
  CheckRounding<Float16>();
  CheckRounding<BFloat16>();
}

}  // namespace
}  // namespace ait
