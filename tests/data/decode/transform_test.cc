// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/transform.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

// The vectors that are published with Random123 (kat_vectors, philox4x32 10).
TEST(SampleRandomTest, IsThePublishedPhilox) {
  using Four = std::array<std::uint32_t, 4>;
  EXPECT_EQ(internal::Philox({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      internal::Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      internal::Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SampleRandomTest, BelongsToSeedEpochSourceAndSample) {
  std::set<std::uint32_t> first;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 40}) {
    for (const std::int64_t epoch : {0, 1, 65'535}) {
      for (const std::int32_t source : {0, 1}) {
        for (const std::int64_t sample : {0LL, 1LL, 1LL << 40}) {
          SampleRandom random(seed, epoch, source, sample);
          SampleRandom again(seed, epoch, source, sample);
          const std::uint32_t bits = random.Bits();
          EXPECT_EQ(bits, again.Bits());
          first.insert(bits);
        }
      }
    }
  }
  EXPECT_EQ(first.size(), 3u * 3u * 2u * 3u);
}

TEST(SampleRandomTest, NumbersAreWhereTheyShouldBe) {
  SampleRandom random(1, 2, 3, 4);
  double sum = 0, squares = 0, normal = 0;
  std::vector<int> seen(7);
  constexpr int kCount = 20'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.Uniform(2, 4);
    EXPECT_GE(x, 2);
    EXPECT_LT(x, 4);
    sum += x;
    const double z = random.Normal();
    normal += z;
    squares += z * z;
    ++seen[static_cast<std::size_t>(random.Below(7))];
  }
  EXPECT_NEAR(sum / kCount, 3, 0.02);
  EXPECT_NEAR(normal / kCount, 0, 0.03);
  EXPECT_NEAR(squares / kCount, 1, 0.05);
  for (const int count : seen) EXPECT_NEAR(count, kCount / 7.0, 300);
  EXPECT_EQ(random.Below(1), 0);
  EXPECT_EQ(random.Uniform(5, 5), 5);
}

TEST(TransformTest, AChainEndsAtTheFirstError) {
  int calls = 0;
  const Transform count = [&](Sample&, SampleRandom&) {
    ++calls;
    return OkStatus();
  };
  const Transform fail = [](Sample&, SampleRandom&) -> Status { return DataLossError("bad"); };
  Sample sample;
  SampleRandom random(0, 0, 0, 0);
  EXPECT_OK(Chain({count, count})(sample, random));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(Chain({count, fail, count})(sample, random).code(), StatusCode::kDataLoss);
  EXPECT_EQ(calls, 3);
  EXPECT_OK(Chain({})(sample, random));
}

}  // namespace
}  // namespace ait
