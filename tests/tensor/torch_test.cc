// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/torch.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ait/memory/heap.h"

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

TEST(TensorOver, SharesTheRowsOfABatch) {
  BatchArray array{.name = "x", .dtype = DType::kFloat32, .shape = {2, 3}};
  array.buffer = HostBuffer::Create(HeapResource::Create(), 1024).value();  // larger than its rows
  array.buffer.As<float>()[5] = 7;
  const at::Tensor tensor = TensorOver(array);
  EXPECT_EQ(tensor.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensor.data_ptr(), array.buffer.data());
  EXPECT_EQ(tensor[1][2].item<float>(), 7);
  array.shape = {0, 3};
  EXPECT_EQ(TensorOver(array).numel(), 0);
}

TEST(Tokens, InputsAndTargetsAreViewsShiftedByOne) {
  const TokenBatch batch{
      .sequence_length = 3, .tokens = {1, 2, 3, 4, 5, 6, 7, 8}, .sample_ids = {0, 9}};
  const at::Tensor inputs = Inputs(batch), targets = Targets(batch);
  EXPECT_EQ(inputs.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(inputs.data_ptr(), batch.tokens.data());
  EXPECT_EQ(targets.data_ptr(), batch.tokens.data() + 1);
  EXPECT_EQ(inputs[1][0].item<std::int64_t>(), 5);
  EXPECT_EQ(targets[1][2].item<std::int64_t>(), 8);
}

TEST(SumOfCrossEntropy, OfUniformLogitsIsTheLogarithmOfTheClasses) {
  const at::Tensor logits = at::zeros({2, 3, 16});
  const at::Tensor targets = at::zeros({2, 3}, at::kLong);
  EXPECT_NEAR(SumOfCrossEntropy(logits, targets).item<float>(), 6 * std::log(16.f), 1e-4);
}

}  // namespace
}  // namespace ait
