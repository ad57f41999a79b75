// SPDX-License-Identifier: Apache-2.0
#include "ait/base/shard.h"

#include <gtest/gtest.h>

namespace ait {
namespace {

TEST(Shard, DefaultIsTheWhole) {
  constexpr Shard whole;
  EXPECT_EQ(whole.rank, Rank(0));
  EXPECT_EQ(whole.size, WorldSize(1));
  EXPECT_TRUE(whole.is_valid());
}

TEST(Shard, IsValidOnlyForARankBelowTheSize) {
  EXPECT_TRUE((Shard{Rank(2), WorldSize(3)}.is_valid()));
  EXPECT_FALSE((Shard{Rank(3), WorldSize(3)}.is_valid()));
  EXPECT_FALSE((Shard{Rank(-1), WorldSize(3)}.is_valid()));
  EXPECT_FALSE((Shard{Rank(0), WorldSize(0)}.is_valid()));
}

}  // namespace
}  // namespace ait
