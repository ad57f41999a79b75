// SPDX-License-Identifier: Apache-2.0
#include "ait/base/types.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace ait {
namespace {

TEST(StrongInt, HoldsAndOrdersValues) {
  EXPECT_EQ(Rank(3).value(), 3);
  EXPECT_LT(Rank(1), Rank(2));
  EXPECT_EQ(Bytes(), Bytes(0));
}

TEST(StrongInt, TypesDoNotMix) {
  EXPECT_FALSE((std::is_convertible_v<Rank, WorldSize>));
  EXPECT_FALSE((std::is_convertible_v<int, Rank>));
  EXPECT_FALSE((std::is_convertible_v<Rank, int>));
  EXPECT_TRUE((std::is_trivially_copyable_v<Rank>));
}

TEST(Bytes, UnitsArePowersOf1024) {
  EXPECT_EQ(KiB(3).value(), 3072);
  EXPECT_EQ(MiB(25).value(), 26214400);
  EXPECT_EQ(GiB(4).value(), 4294967296);
}

TEST(RoundUp, GivesTheNextMultiple) {
  EXPECT_EQ(RoundUp(0, 64), 0);
  EXPECT_EQ(RoundUp(1, 64), 64);
  EXPECT_EQ(RoundUp(64, 64), 64);
  EXPECT_EQ(RoundUp(65, 3), 66);
}

}  // namespace
}  // namespace ait
