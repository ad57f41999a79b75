// SPDX-License-Identifier: Apache-2.0
#include "activation/bit_mask_internal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <vector>

namespace ait::internal {
namespace {

template <typename Bits>
class BitMask : public ::testing::Test {};
using Sizes = ::testing::Types<std::uint16_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(BitMask, Sizes);

bool Bit(const std::vector<std::uint64_t>& mask, std::int64_t i) {
  return (mask[static_cast<std::size_t>(i / 64)] >> (i % 64)) & 1u;
}

TYPED_TEST(BitMask, BitsAreThoseOfElements) {
  std::mt19937_64 random(1);
  for (const std::int64_t n : {1, 63, 64, 65, 200, 1000}) {
    std::vector<TypeParam> values(static_cast<std::size_t>(n));
    for (auto& value : values) value = random() % 3 == 0 ? static_cast<TypeParam>(random()) : 0;
    std::vector<std::uint64_t> mask(static_cast<std::size_t>(MaskWords(n)), ~std::uint64_t{0});
    MaskOfNonzero(values.data(), mask.data(), n);
    std::vector<TypeParam> expanded(values.size() + 1, 9), selected(values.size() + 1, 9);
    Expand(mask.data(), TypeParam{7}, expanded.data(), n);
    Select(mask.data(), values.data(), selected.data(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<std::size_t>(i);
      EXPECT_EQ(Bit(mask, i), values[k] != 0);
      EXPECT_EQ(expanded[k], values[k] != 0 ? 7 : 0);
      EXPECT_EQ(selected[k], values[k]);
    }
    EXPECT_EQ(expanded.back(), 9);
    EXPECT_EQ(selected.back(), 9);
    if (n % 64 != 0) {
      EXPECT_EQ(mask.back() >> (n % 64), 0u);
    }
  }
}

TEST(MaskOfRelu, LetsThroughWhatIsAboveZeroAndNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, 1e-45f, kInf, kNan, -kNan, -1.0f, -kInf};
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  std::vector<std::uint64_t> mask(1);
  MaskOfRelu(bits.data(), std::bit_cast<std::uint32_t>(kInf), mask.data(),
             static_cast<std::int64_t>(bits.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(Bit(mask, static_cast<std::int64_t>(i)), !(values[i] <= 0)) << values[i];
  }
}

}  // namespace
}  // namespace ait::internal
