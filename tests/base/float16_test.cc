// SPDX-License-Identifier: Apache-2.0
#include "ait/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ait {
namespace {

// Every one of the 65,536 values survives the way to float and back.
template <typename T>
void ExpectEveryValueSurvives() {
  for (std::uint32_t i = 0; i <= 0xffff; ++i) {
    T value;
    value.bits = static_cast<std::uint16_t>(i);
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(T(wide))));
    } else {
      ASSERT_EQ(T(wide).bits, value.bits) << i;
    }
  }
}

// Between neighbours a < b the midpoint goes to the even one; anything off it goes to the nearer
// one.
template <typename T>
void ExpectTiesToEven(std::uint16_t last_finite) {
  for (std::uint16_t i = 0; i < last_finite; ++i) {
    T low, high;
    low.bits = i;
    high.bits = static_cast<std::uint16_t>(i + 1);
    const double a = static_cast<float>(low), b = static_cast<float>(high);
    const auto middle = static_cast<float>((a + b) / 2);
    if (static_cast<double>(middle) != (a + b) / 2) continue;  // not a float
    ASSERT_EQ(T(middle).bits, i % 2 == 0 ? low.bits : high.bits) << i;
    ASSERT_EQ(T(std::nextafter(middle, 0.f)).bits, low.bits) << i;
    ASSERT_EQ(T(std::nextafter(middle, INFINITY)).bits, high.bits) << i;
    ASSERT_EQ(T(-middle).bits, T(middle).bits | 0x8000) << i;
  }
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) { ExpectEveryValueSurvives<BFloat16>(); }
TEST(Float16, EveryValueSurvivesTheRoundTrip) { ExpectEveryValueSurvives<Float16>(); }
TEST(BFloat16, RoundsToNearestEven) { ExpectTiesToEven<BFloat16>(0x7f7f); }
TEST(Float16, RoundsToNearestEven) { ExpectTiesToEven<Float16>(0x7bff); }

TEST(Float16, OverflowsToInfinityAtTheMidpointAbove65504) {
  EXPECT_EQ(Float16(65519.f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.f).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00);
}

TEST(BFloat16, OverflowsToInfinity) {
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(BFloat16(-INFINITY).bits, 0xff80);
}

}  // namespace
}  // namespace ait
