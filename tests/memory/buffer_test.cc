// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;

TEST(HostBuffer, GivesItsBytesBackOnce) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  {
    ASSERT_OK_AND_ASSIGN(HostBuffer first, HostBuffer::Create(counted, 1000, 4096));
    EXPECT_EQ(first.size_bytes(), 1000u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % 4096, 0u);
    const std::byte* const address = first.data();
    HostBuffer second = std::move(first);
    EXPECT_EQ(second.data(), address);
    EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): empty by contract
    EXPECT_EQ(first.size_bytes(), 0u);

    ASSERT_OK_AND_ASSIGN(HostBuffer third, HostBuffer::Create(counted, 10));
    third = std::move(second);
    EXPECT_EQ(third.data(), address);
    EXPECT_EQ(counted->statistics().current_bytes, 1000) << "what it held before is given back";
    HostBuffer& itself = third;
    third = std::move(itself);
    EXPECT_EQ(third.data(), address);
  }
  EXPECT_EQ(counted->statistics().current_count, 0);
  EXPECT_EQ(counted->statistics().total_count, 2);
}

TEST(HostBuffer, ShowsItsBytesAsNumbers) {
  ASSERT_OK_AND_ASSIGN(HostBuffer buffer, HostBuffer::Create(HeapResource::Create(), 11));
  EXPECT_EQ(buffer.As<float>().size(), 2u);
  EXPECT_EQ(buffer.bytes().size(), 11u);
  std::ranges::fill(buffer.As<float>(), 1.5f);
  EXPECT_EQ(std::as_const(buffer).As<float>()[1], 1.5f);
  buffer.Zero();
  EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(HostBuffer, MayBeEmpty) {
  HostBuffer none;
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_FALSE(none.memory());
  none.Zero();
  ASSERT_OK_AND_ASSIGN(const HostBuffer zero, HostBuffer::Create(HeapResource::Create(), 0));
  EXPECT_EQ(zero.size_bytes(), 0u);
}

TEST(HostBuffer, HandsOnTheErrorsOfItsMemory) {
  EXPECT_THAT(HostBuffer::Create(MemoryHandle(), 8), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(HostBuffer::Create(HeapResource::Create(), 8, 3),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(HostBuffer, KeepsItsResource) {
  auto counted = StatisticsResource::Create(HeapResource::Create());
  const std::weak_ptr<StatisticsResource> watch = counted;
  ASSERT_OK_AND_ASSIGN(HostBuffer buffer, HostBuffer::Create(std::move(counted), 64));
  EXPECT_FALSE(watch.expired());
  buffer = HostBuffer();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace ait
