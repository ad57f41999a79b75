// SPDX-License-Identifier: Apache-2.0
#include "ait/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace ait {
namespace {

std::vector<std::int64_t> First(const Permutation& order, std::int64_t count) {
  std::vector<std::int64_t> items;
  for (std::int64_t i = 0; i < count; ++i) items.push_back(order(i));
  return items;
}

// How far a sum of squared deviations is from what chance gives, in standard deviations.
double ChiSquareScore(const std::vector<std::int64_t>& counts, double expected, double freedom) {
  double sum = 0;
  for (std::int64_t count : counts) sum += (count - expected) * (count - expected) / expected;
  return (sum - freedom) / std::sqrt(2 * freedom);
}

// The vectors of docs/data.md, computed by another program in another language.
TEST(Permutation, GivesTheDocumentedVectors) {
  EXPECT_EQ(First(Permutation(10, 0, 0), 10),
            (std::vector<std::int64_t>{4, 2, 7, 0, 9, 1, 3, 8, 5, 6}));
  EXPECT_EQ(First(Permutation(10, 0, 1), 10),
            (std::vector<std::int64_t>{8, 4, 0, 3, 7, 9, 2, 1, 5, 6}));
  EXPECT_EQ(First(Permutation(1000, 1, 0), 10),
            (std::vector<std::int64_t>{132, 827, 946, 581, 196, 761, 452, 832, 23, 884}));
  EXPECT_EQ(First(Permutation(1'000'000'007, 0xfeedfacecafebeef, 3), 10),
            (std::vector<std::int64_t>{815229262, 172940003, 488022171, 358485928, 14171451,
                                       239923194, 758328716, 547333535, 804933107, 726044097}));
  const Permutation large((std::int64_t{1} << 40) + 1, 7, 12345);
  EXPECT_EQ(large(0), 785425629649);
  EXPECT_EQ(large(1), 925388780055);
  EXPECT_EQ(large(std::int64_t{1} << 40), 370194356615);
}

TEST(Permutation, HitsEveryItemOnce) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= 300; ++size) sizes.push_back(size);
  for (std::int64_t size : {511, 512, 513, 997, 1024, 4093, 65535, 65536, 65537, 100003}) {
    sizes.push_back(size);
  }
  for (std::int64_t size : sizes) {
    for (std::uint64_t seed : {0ull, 1ull, ~0ull}) {
      const Permutation order(size, seed, static_cast<std::int64_t>(seed % 7));
      EXPECT_EQ(order.size(), size);
      std::vector<bool> seen(static_cast<std::size_t>(size));
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t item = order(i);
        ASSERT_TRUE(item >= 0 && item < size && !seen[static_cast<std::size_t>(item)])
            << "size " << size << ", seed " << seed << ", position " << i << ", item " << item;
        seen[static_cast<std::size_t>(item)] = true;
      }
    }
  }
}

TEST(Permutation, StaysInRangeForTheLargestSizes) {
  for (std::int64_t size : {(std::int64_t{1} << 62), (std::int64_t{1} << 61) + 1}) {
    const Permutation order(size, 5, 0);
    for (std::int64_t i = size - 1000; i < size; ++i) {
      ASSERT_GE(order(i), 0);
      ASSERT_LT(order(i), size);
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpochSeparately) {
  EXPECT_NE(First(Permutation(1000, 1, 0), 20), First(Permutation(1000, 2, 0), 20));
  EXPECT_NE(First(Permutation(1000, 1, 0), 20), First(Permutation(1000, 1, 1), 20));
  EXPECT_NE(First(Permutation(1000, 1, 1), 20), First(Permutation(1000, 2, 0), 20));
}

// All 5! orders of five items come equally often over the seeds.
TEST(Permutation, OfFewItemsIsUniform) {
  std::map<std::vector<std::int64_t>, std::int64_t> counts;
  constexpr int kSeeds = 60000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) ++counts[First(Permutation(5, seed, 0), 5)];
  ASSERT_EQ(counts.size(), 120u);
  std::vector<std::int64_t> values;
  for (const auto& [items, count] : counts) values.push_back(count);
  EXPECT_LT(std::abs(ChiSquareScore(values, kSeeds / 120.0, 119)), 4);
}

// Every item comes at every position equally often, and every ordered pair comes first equally
// often.
TEST(Permutation, OfManyItemsIsUniformInPositionsAndPairs) {
  for (std::int64_t size : {33, 300}) {
    constexpr int kSeeds = 4000;
    const auto n = static_cast<std::size_t>(size);
    std::vector<std::int64_t> at(n * n);
    std::vector<std::int64_t> differences(n);
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const std::vector<std::int64_t> items = First(Permutation(size, seed, 1), size);
      for (std::size_t i = 0; i < n; ++i) ++at[i * n + static_cast<std::size_t>(items[i])];
      ++differences[static_cast<std::size_t>((items[1] - items[0] + size) % size)];
    }
    const double freedom = static_cast<double>((size - 1) * (size - 1));
    EXPECT_LT(std::abs(ChiSquareScore(at, static_cast<double>(kSeeds) / size, freedom)), 4) << size;
    EXPECT_EQ(differences[0], 0);
    differences.erase(differences.begin());
    EXPECT_LT(std::abs(ChiSquareScore(differences, kSeeds / (size - 1.0), size - 2.0)), 4) << size;
  }
}

// Neighbours in the corpus are not neighbours in the order.
TEST(Permutation, BreaksUpRuns) {
  constexpr std::int64_t kSize = 1'000'003;
  const Permutation order(kSize, 3, 0);
  int runs = 0;
  double distance = 0;
  constexpr int kCount = 100'000;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const std::int64_t step = order(i + 1) - order(i);
    if (step == 1) ++runs;
    distance += static_cast<double>(std::abs(step));
  }
  EXPECT_LE(runs, 3);
  EXPECT_NEAR(distance / kCount / kSize, 1.0 / 3, 0.01);
}

}  // namespace
}  // namespace ait
