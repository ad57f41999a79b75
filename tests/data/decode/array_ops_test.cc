// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/array_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ait/base/float16.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

template <typename T>
SampleField Array(std::vector<std::int64_t> shape, const std::vector<T>& values) {
  return ArrayField("x", kDTypeOf<T>, std::move(shape), std::as_bytes(std::span(values)));
}

template <typename T>
std::vector<T> Values(const SampleField& field) {
  EXPECT_EQ(field.dtype, kDTypeOf<T>);
  std::vector<T> values(field.value.size_bytes() / sizeof(T));
  std::memcpy(values.data(), field.value.data(), field.value.size_bytes());
  return values;
}

TEST(ArrayOpsTest, NumbersStayTheSameInAnotherType) {
  const SampleField small = Array<std::int32_t>({5}, {0, 1, 7, 100, 127});
  for (int from = 0; from < kDTypeCount; ++from) {
    if (static_cast<DType>(from) == DType::kBool) continue;
    ASSERT_OK_AND_ASSIGN(const SampleField a, ConvertArray(small, static_cast<DType>(from)));
    EXPECT_EQ(a.shape, small.shape);
    for (int to = 0; to < kDTypeCount; ++to) {
      if (static_cast<DType>(to) == DType::kBool) continue;
      ASSERT_OK_AND_ASSIGN(const SampleField b, ConvertArray(a, static_cast<DType>(to)));
      ASSERT_OK_AND_ASSIGN(const SampleField back, ConvertArray(b, DType::kInt32));
      EXPECT_EQ(back.value.text(), small.value.text()) << from << " to " << to;
    }
  }
  ASSERT_OK_AND_ASSIGN(const SampleField truth, ConvertArray(small, DType::kBool));
  EXPECT_EQ(truth.value.text(), std::string("\0\1\1\1\1", 5));
}

TEST(ArrayOpsTest, EdgesOfTypes) {
  const auto converts = [](const SampleField& field, DType dtype) {
    return ConvertArray(field, dtype).ok();
  };
  using I64 = std::numeric_limits<std::int64_t>;
  EXPECT_TRUE(converts(Array<std::int64_t>({}, {255}), DType::kUInt8));
  EXPECT_FALSE(converts(Array<std::int64_t>({}, {256}), DType::kUInt8));
  EXPECT_FALSE(converts(Array<std::int64_t>({}, {-1}), DType::kUInt32));
  EXPECT_TRUE(converts(Array<std::int64_t>({}, {(1LL << 32) - 1}), DType::kUInt32));
  EXPECT_FALSE(converts(Array<double>({}, {NAN}), DType::kInt64));
  EXPECT_FALSE(converts(Array<double>({}, {0x1p63}), DType::kInt64));
  EXPECT_TRUE(converts(Array<double>({}, {-0x1p63}), DType::kInt64));
  EXPECT_TRUE(converts(Array<double>({}, {-0.9}), DType::kUInt8));
  EXPECT_TRUE(converts(Array<double>({}, {255.9}), DType::kUInt8));
  EXPECT_FALSE(converts(Array<double>({}, {256}), DType::kUInt8));
  EXPECT_THAT(ConvertArray(Array<std::int64_t>({2}, {1, I64::min()}), DType::kInt32),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("number 1 of field x")));
  ASSERT_OK_AND_ASSIGN(const SampleField large,
                       ConvertArray(Array<std::int64_t>({}, {I64::max()}), DType::kFloat64));
  EXPECT_EQ(Values<double>(large)[0], 0x1p63);
}

TEST(ArrayOpsTest, DoublesAreRoundedOnce) {
  // Halfway between two bfloat16 but for the last bit, which float does not have.
  const double up = 1 + 0x1p-8 + 0x1p-50;
  ASSERT_OK_AND_ASSIGN(const SampleField rounded,
                       ConvertArray(Array<double>({3}, {up, 1 + 0x1p-8, -up}), DType::kBFloat16));
  const auto values = Values<BFloat16>(rounded);
  EXPECT_EQ(static_cast<float>(values[0]), 1 + 0x1p-7F);
  EXPECT_EQ(static_cast<float>(values[1]), 1);
  EXPECT_EQ(static_cast<float>(values[2]), -1 - 0x1p-7F);
}

TEST(ArrayOpsTest, OneHot) {
  ASSERT_OK_AND_ASSIGN(const SampleField hot, OneHotArray(Array<std::int16_t>({2}, {2, 0}), 3));
  EXPECT_THAT(hot.shape, ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(hot), ElementsAre(0, 0, 1, 1, 0, 0));
  ASSERT_OK_AND_ASSIGN(const SampleField one,
                       OneHotArray(Array<std::int64_t>({}, {1}), 2, DType::kUInt8));
  EXPECT_THAT(one.shape, ElementsAre(2));
  EXPECT_THAT(Values<std::uint8_t>(one), ElementsAre(0, 1));
  EXPECT_THAT(OneHotArray(Array<std::int64_t>({}, {3}), 3),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("class 3")));
  EXPECT_THAT(OneHotArray(Array<std::int64_t>({}, {-1}), 3),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(OneHotArray(Array<float>({}, {1}), 3), StatusIs(StatusCode::kInvalidArgument));
}

TEST(ArrayOpsTest, PadsAnyDimension) {
  const SampleField array = Array<std::int32_t>({2, 2}, {1, 2, 3, 4});
  ASSERT_OK_AND_ASSIGN(const SampleField rows, PadArray(array, {.multiple = 3, .value = -1}));
  EXPECT_THAT(rows.shape, ElementsAre(3, 2));
  EXPECT_THAT(Values<std::int32_t>(rows), ElementsAre(1, 2, 3, 4, -1, -1));
  ASSERT_OK_AND_ASSIGN(const SampleField columns, PadArray(array, {.dimension = 1, .length = 3}));
  EXPECT_THAT(Values<std::int32_t>(columns), ElementsAre(1, 2, 0, 3, 4, 0));
  ASSERT_OK_AND_ASSIGN(
      const SampleField cut,
      PadArray(array, {.dimension = 1, .length = 1, .multiple = 2, .too_long = TooLong::kCut}));
  EXPECT_THAT(Values<std::int32_t>(cut), ElementsAre(1, 0, 3, 0));
  EXPECT_THAT(PadArray(array, {.length = 1}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(PadArray(array, {.dimension = 2}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(PadArray(array, {.length = 5, .value = 0x1p40}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(ArrayOpsTest, StacksToTheLongest) {
  const SampleField a = Array<std::int64_t>({3}, {1, 2, 3});
  const SampleField b = Array<std::int64_t>({0}, {});
  const SampleField c = Array<std::int64_t>({5}, {4, 5, 6, 7, 8});
  const std::vector<const SampleField*> all = {&a, &b, &c};
  ASSERT_OK_AND_ASSIGN(const PaddedStack stack, StackPadded(all, {.multiple = 2, .value = -100}));
  EXPECT_THAT(stack.values.shape, ElementsAre(3, 6));
  EXPECT_THAT(Values<std::int64_t>(stack.values),
              ElementsAre(1, 2, 3, -100, -100, -100, -100, -100, -100, -100, -100, -100, 4, 5, 6, 7,
                          8, -100));
  EXPECT_THAT(stack.lengths, ElementsAre(3, 0, 5));
  EXPECT_EQ(stack.mask.value.text(), std::string("\1\1\1\0\0\0\0\0\0\0\0\0\1\1\1\1\1\0", 18));
  ASSERT_OK_AND_ASSIGN(const PaddedStack cut,
                       StackPadded(all, {.length = 2, .too_long = TooLong::kCut}));
  EXPECT_THAT(Values<std::int64_t>(cut.values), ElementsAre(1, 2, 0, 0, 4, 5));
  EXPECT_THAT(cut.lengths, ElementsAre(2, 0, 2));
}

TEST(ArrayOpsTest, WhatDoesNotFitIsSaid) {
  const SampleField a = Array<std::int64_t>({1, 3}, {1, 2, 3});
  const SampleField b = Array<std::int64_t>({1, 2}, {1, 2});
  const std::vector<const SampleField*> both = {&a, &b};
  EXPECT_THAT(StackPadded(both, {}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("array 1")));
  EXPECT_OK(StackPadded(both, {.dimension = 1}));
  EXPECT_THAT(StackPadded({}, {}), StatusIs(StatusCode::kInvalidArgument));
  SampleField wrong = a;
  wrong.shape = {2, 3};
  EXPECT_THAT(CheckArray(wrong), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckArray({.name = "y"}), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait
