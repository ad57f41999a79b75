// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/buffer.h"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <type_traits>
#include <vector>

#include "ait/base/float16.h"

namespace ait {
namespace {

TEST(View, TakesAddressCountAndTypeOfARange) {
  std::vector<double> numbers(5);
  const Buffer buffer = View(numbers);
  EXPECT_EQ(buffer.data, numbers.data());
  EXPECT_EQ(buffer.count, 5);
  EXPECT_EQ(buffer.dtype, DType::kFloat64);
  EXPECT_EQ(buffer.bytes(), Bytes(40));

  std::array<BFloat16, 3> halves;
  EXPECT_EQ(View(halves).dtype, DType::kBFloat16);
  EXPECT_EQ(View(halves).bytes(), Bytes(6));
  EXPECT_EQ(View(std::span(numbers).subspan(2)).data, &numbers[2]);
}

TEST(View, OfConstElementsIsOnlyRead) {
  const std::vector<int> numbers(4);
  static_assert(std::is_same_v<decltype(View(numbers)), ConstBuffer>);
  static_assert(std::is_same_v<decltype(View(std::span<const int>(numbers))), ConstBuffer>);
  std::vector<int> writable(4);
  static_assert(std::is_same_v<decltype(View(writable)), Buffer>);
  static_assert(!std::is_convertible_v<ConstBuffer, Buffer>);
  EXPECT_EQ(View(numbers).data, numbers.data());
  EXPECT_EQ(View(numbers).count, 4);
}

TEST(View, OfNothingIsEmpty) {
  std::vector<float> nothing;
  EXPECT_EQ(View(nothing).count, 0);
  EXPECT_EQ(View(nothing).bytes(), Bytes(0));
}

TEST(Buffer, SlicesCountElements) {
  std::vector<std::int16_t> numbers(10);
  const Buffer slice = View(numbers).Slice(3, 4);
  EXPECT_EQ(slice.data, &numbers[3]);
  EXPECT_EQ(slice.count, 4);
  EXPECT_EQ(slice.dtype, DType::kInt16);
  EXPECT_EQ(slice.Slice(4, 0).data, &numbers[7]);
  const ConstBuffer read_only = slice;
  EXPECT_EQ(read_only.Slice(1, 2).data, &numbers[4]);
  EXPECT_EQ(read_only.bytes(), Bytes(8));
}

}  // namespace
}  // namespace ait
