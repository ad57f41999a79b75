// SPDX-License-Identifier: Apache-2.0
// npz and safetensors: several arrays of equal first dimension. The files are numpy's and
// safetensors' (testdata/generate.py).
#include <gtest/gtest.h>

#include "data/format/shard_test_support.h"

namespace ait {
namespace {

using ::ait::testing::Numbers;
using ::ait::testing::ObjectOf;
using ::ait::testing::OpenTestShard;
using ::ait::testing::ReadAll;
using ::ait::testing::StatusIs;
using ::ait::testing::TestDamage;
using ::ait::testing::TestData;
using ::testing::HasSubstr;

TEST(NpzTest, ArraysAreFieldsWhetherDeflatedOrNot) {
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard(name));
    EXPECT_EQ(shard->format(), "npz");
    const std::vector<Sample> rows = ReadAll(*shard);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(Numbers<std::uint8_t>(rows[1].Find("image")),
              std::vector<std::uint8_t>({4, 5, 6, 7}));
    EXPECT_EQ(rows[1].Find("image")->shape, std::vector<std::int64_t>({2, 2}));
    EXPECT_EQ(Numbers<std::int64_t>(rows[2].Find("label")), std::vector<std::int64_t>({9}));
  }
  ASSERT_OK_AND_ASSIGN(const auto one, OpenTestShard("one.npz"));
  EXPECT_EQ(Numbers<float>(ReadAll(*one)[1].Find("arr_0")), std::vector<float>({2, 3}));
}

TEST(NpzTest, ArraysOfDifferentLengthsAreRefused) {
  EXPECT_THAT(OpenTestShard("uneven.npz"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("first dimension")));
}

TEST(NpzTest, DamageIsAnError) {
  for (const char* name : {"stored.npz", "deflated.npz", "rows.safetensors"}) TestDamage(name);
}

TEST(NpzTest, AFlippedBitOfTheNumbersIsFound) {
  const std::string bytes = TestData("stored.npz");
  std::string flipped = bytes;
  const std::size_t at = flipped.find(std::string("\0\1\2\3\4\5", 6));
  ASSERT_NE(at, std::string::npos);
  flipped[at] ^= 1;
  EXPECT_THAT(OpenShard(ObjectOf("a.npz", flipped)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("CRC-32")));
}

TEST(NpzTest, WhatUnpacksToMoreThanAllowedIsRefused) {
  EXPECT_THAT(OpenTestShard("deflated.npz", {.max_unpacked_bytes = 100}),
              StatusIs(StatusCode::kResourceExhausted));
}

TEST(SafetensorsDataTest, TensorsAreFields) {
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard("rows.safetensors"));
  EXPECT_EQ(shard->format(), "safetensors");
  const std::vector<Sample> rows = ReadAll(*shard);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(Numbers<float>(rows[2].Find("x")), std::vector<float>({4, 5}));
  EXPECT_EQ(Numbers<std::int64_t>(rows[1].Find("y")), std::vector<std::int64_t>({-1}));
}

}  // namespace
}  // namespace ait
