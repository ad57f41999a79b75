// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/dtype.h"

#include <c10/core/ScalarType.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(DType, GoesToTorchAndBackWithTheSameSize) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    ASSERT_OK_AND_ASSIGN(const DType back, FromTorch(ToTorch(dtype)));
    EXPECT_EQ(back, dtype) << Name(dtype);
    EXPECT_EQ(c10::elementSize(ToTorch(dtype)), static_cast<std::size_t>(SizeOf(dtype)));
  }
  EXPECT_EQ(ToTorch(DType::kBFloat16), c10::ScalarType::BFloat16);
  EXPECT_EQ(ToTorch(DType::kInt64), c10::ScalarType::Long);
}

TEST(DType, RefusesTypesThatAitDoesNotCarry) {
  EXPECT_THAT(FromTorch(c10::ScalarType::ComplexFloat),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("ComplexFloat")));
}

}  // namespace
}  // namespace ait
