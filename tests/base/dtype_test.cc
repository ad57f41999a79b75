// SPDX-License-Identifier: Apache-2.0
#include "ait/base/dtype.h"

#include <gtest/gtest.h>

namespace ait {
namespace {

TEST(DType, NamesAreUniqueAndReadBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(Name(dtype)), dtype);
  }
  EXPECT_EQ(DTypeFromName("float31"), std::nullopt);
}

TEST(DType, NumbersAreThoseOfTheFileFormats) {
  EXPECT_EQ(static_cast<int>(DType::kUInt8), 0);
  EXPECT_EQ(static_cast<int>(DType::kFloat32), 7);
  EXPECT_EQ(static_cast<int>(DType::kUInt16), 10);
}

TEST(DType, SizeMatchesTheCppType) {
  EXPECT_EQ(SizeOf(kDTypeOf<double>), 8);
  EXPECT_EQ(SizeOf(kDTypeOf<std::int16_t>), 2);
  EXPECT_EQ(SizeOf(kDTypeOf<bool>), 1);
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2);
}

TEST(DType, FloatingPointIsTheFourFloats) {
  int count = 0;
  for (int i = 0; i < kDTypeCount; ++i) count += IsFloatingPoint(static_cast<DType>(i));
  EXPECT_EQ(count, 4);
  EXPECT_FALSE(IsFloatingPoint(DType::kInt64));
  EXPECT_TRUE(IsFloatingPoint(DType::kBFloat16));
}

}  // namespace
}  // namespace ait
