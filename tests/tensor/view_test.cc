// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/view.h"

#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ViewOfTensor, SeesTheElementsInPlace) {
  const at::Tensor tensor = at::ones({2, 3}, at::kBFloat16);
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, View(tensor));
  EXPECT_EQ(buffer.data, tensor.data_ptr());
  EXPECT_EQ(buffer.count, 6);
  EXPECT_EQ(buffer.dtype, DType::kBFloat16);
  ASSERT_OK_AND_ASSIGN(const Buffer part, View(tensor.narrow(0, 1, 1)));
  EXPECT_EQ(part.data, static_cast<char*>(tensor.data_ptr()) + 6);
}

TEST(ViewOfTensor, TakesEmptyAndScalarTensors) {
  ASSERT_OK_AND_ASSIGN(const Buffer empty, View(at::empty({0, 4})));
  EXPECT_EQ(empty.count, 0);
  ASSERT_OK_AND_ASSIGN(const Buffer scalar, View(at::ones({})));
  EXPECT_EQ(scalar.count, 1);
}

TEST(ViewOfTensor, RefusesWhatIsNotPlainHostMemory) {
  EXPECT_THAT(View(at::Tensor()), StatusIs(StatusCode::kInvalidArgument, HasSubstr("undefined")));
  EXPECT_THAT(View(at::ones({2, 3}).t()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("strides (1, 3)")));
  EXPECT_THAT(View(at::ones({2, 3}).to_sparse()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("sparse")));
  EXPECT_THAT(View(at::empty({2}, at::kMeta)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("meta")));
  EXPECT_THAT(View(at::ones({2}, at::kComplexFloat)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("ComplexFloat")));
}

}  // namespace
}  // namespace ait
