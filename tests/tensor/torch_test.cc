// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/torch.h"

#include <gtest/gtest.h>

#include <vector>

namespace ait {
namespace {

TEST(TensorOver, SharesTheMemory) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  const at::Tensor tensor = TensorOver(View(values), {2, 3});
  EXPECT_EQ(tensor.dim(), 2);
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  EXPECT_EQ(tensor.data_ptr(), values.data());
  EXPECT_EQ(TensorOver(View(values)).size(0), 6);
}

TEST(TensorOver, TakesAnEmptyBuffer) {
  EXPECT_EQ(TensorOver(Buffer{nullptr, 0, DType::kInt64}).numel(), 0);
}

}  // namespace
}  // namespace ait
