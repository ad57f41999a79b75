// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "memory/region_allocator_internal.h"

namespace ait {
namespace {

using internal::RegionAllocator;

TEST(RegionAllocator, TakesTheFirstGapThatFits) {
  RegionAllocator regions(1000);
  EXPECT_EQ(regions.Allocate(100, 1), 0u);
  EXPECT_EQ(regions.Allocate(100, 1), 100u);
  EXPECT_EQ(regions.Allocate(100, 1), 200u);
  EXPECT_TRUE(regions.Free(0, 100));
  EXPECT_EQ(regions.Allocate(150, 1), 300u);
  EXPECT_EQ(regions.Allocate(40, 1), 0u);
  EXPECT_EQ(regions.Allocate(600, 1), std::nullopt);
}

TEST(RegionAllocator, JoinsNeighboursInEveryOrder) {
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    RegionAllocator regions(300);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(regions.Allocate(100, 1));
    EXPECT_EQ(regions.free_bytes(), 0u);
    for (std::size_t i : order) EXPECT_TRUE(regions.Free(i * 100, 100));
    EXPECT_EQ(regions.largest_gap(), 300u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(RegionAllocator, WhatAlignmentSkipsStaysFree) {
  RegionAllocator regions(4096);
  EXPECT_EQ(regions.Allocate(100, 1), 0u);
  EXPECT_EQ(regions.Allocate(1000, 2048), 2048u);
  EXPECT_EQ(regions.Allocate(1900, 1), 100u);
}

TEST(RegionAllocator, RefusesToFreeWhatIsFreeOrOutside) {
  RegionAllocator regions(1000);
  ASSERT_EQ(regions.Allocate(400, 1), 0u);
  EXPECT_FALSE(regions.Free(350, 100)) << "reaches into the gap behind";
  EXPECT_FALSE(regions.Free(500, 10));
  EXPECT_FALSE(regions.Free(900, 200));
  EXPECT_FALSE(regions.Free(2000, 1));
  EXPECT_FALSE(regions.Free(1, static_cast<std::size_t>(-1)));
  EXPECT_FALSE(regions.Free(0, 0));
  EXPECT_EQ(regions.free_bytes(), 600u);
  EXPECT_TRUE(regions.Free(0, 400));
  EXPECT_FALSE(regions.Free(0, 400)) << "twice";
  EXPECT_EQ(regions.free_bytes(), 1000u);
}

TEST(RegionAllocator, AgreesWithAMapOfBytesOnRandomRequests) {
  constexpr std::size_t kCapacity = 512;
  std::mt19937 random(3);
  RegionAllocator regions(kCapacity);
  std::vector<bool> taken(kCapacity);
  std::map<std::size_t, std::size_t> blocks;
  for (int step = 0; step < 5000; ++step) {
    const std::size_t bytes = 1 + random() % 40;
    const std::size_t alignment = std::size_t{1} << (random() % 5);
    if (random() % 2 == 0) {
      // Oracle: the first aligned place where all bytes are free.
      std::optional<std::size_t> expected;
      for (std::size_t at = 0; !expected && at + bytes <= kCapacity; at += alignment) {
        const auto begin = taken.begin() + static_cast<std::ptrdiff_t>(at);
        if (std::none_of(begin, begin + static_cast<std::ptrdiff_t>(bytes), std::identity())) {
          expected = at;
        }
      }
      const auto offset = regions.Allocate(bytes, alignment);
      ASSERT_EQ(offset, expected);
      if (offset) {
        blocks[*offset] = bytes;
        std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(*offset), bytes, true);
      }
    } else if (!blocks.empty()) {
      const auto block =
          std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
      ASSERT_TRUE(regions.Free(block->first, block->second));
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(block->first), block->second, false);
      blocks.erase(block);
    }
    ASSERT_EQ(regions.free_bytes(),
              static_cast<std::size_t>(std::count(taken.begin(), taken.end(), false)));
  }
}

TEST(RegionAllocator, TellsWhatIsTaken) {
  using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;
  RegionAllocator regions(1000);
  EXPECT_EQ(regions.Taken(0, 1000), Ranges());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(regions.Allocate(200, 1), i * 200);
  EXPECT_EQ(regions.Taken(0, 1000), (Ranges{{0, 1000}}));
  EXPECT_EQ(regions.Taken(100, 150), (Ranges{{100, 150}}));
  EXPECT_TRUE(regions.Free(200, 200));
  EXPECT_TRUE(regions.Free(800, 200));
  EXPECT_EQ(regions.Taken(0, 1000), (Ranges{{0, 200}, {400, 800}}));
  EXPECT_EQ(regions.Taken(250, 1000), (Ranges{{400, 800}}));
  EXPECT_EQ(regions.Taken(250, 500), (Ranges{{400, 500}}));
  EXPECT_EQ(regions.Taken(200, 400), Ranges());
  EXPECT_EQ(regions.Taken(850, 1000), Ranges());
}

}  // namespace
}  // namespace ait
