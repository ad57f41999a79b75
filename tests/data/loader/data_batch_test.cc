// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/data_batch.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "ait/memory/heap.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

TEST(DataBatchTest, ArraysAreFoundByNameAndSeenWithoutTheSlackOfTheirBuffer) {
  auto buffer = HostBuffer::Create(HeapResource::Create(), 1000);
  ASSERT_OK(buffer);
  std::iota(buffer->As<float>().begin(), buffer->As<float>().end(), 0.0F);
  DataBatch batch;
  batch.arrays.push_back(
      {.name = "x", .dtype = DType::kFloat32, .shape = {2, 3}, .buffer = *std::move(buffer)});
  const BatchArray* x = batch.Find("x");
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->size_bytes(), 24U);
  EXPECT_EQ(x->bytes().size(), 24U);
  EXPECT_EQ(x->As<float>().size(), 6U);
  EXPECT_EQ(x->As<float>()[5], 5.0F);
  EXPECT_EQ(x->device, nullptr);
  EXPECT_EQ(batch.Find("y"), nullptr);
}

}  // namespace
}  // namespace ait
