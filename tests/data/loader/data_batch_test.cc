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

TEST(CopyBatchTest, StaysAsItWasWhenTheLoaderGoesOn) {
  DataBatch batch;
  batch.arrays.push_back({.name = "x", .dtype = DType::kInt32, .shape = {2}});
  batch.arrays[0].buffer = HostBuffer::Create(HeapResource::Create(), 1024).value();
  batch.arrays[0].buffer.As<std::int32_t>()[1] = 5;
  batch.samples = {{.id = 3}, {.id = 4}};
  batch.weights = {1, 0};
  const auto copy = CopyBatch(batch);
  ASSERT_TRUE(copy.ok());
  batch.arrays[0].buffer.As<std::int32_t>()[1] = 6;
  batch.samples.clear();
  EXPECT_EQ(copy->Find("x")->As<std::int32_t>()[1], 5);
  EXPECT_EQ(copy->Find("x")->bytes().size(), 8u);
  EXPECT_EQ(copy->samples[1].id, 4);
  EXPECT_EQ(copy->weights, (std::vector<float>{1, 0}));
}

TEST(DataBatchTest, WhatIsOnADeviceIsNotCopied) {
  DataBatch batch;
  int device = 0;
  batch.arrays.push_back({.name = "x", .dtype = DType::kUInt8, .shape = {0}, .device = &device});
  EXPECT_EQ(CopyBatch(batch).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ait
