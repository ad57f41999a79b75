// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/resource.h"

#include <gtest/gtest.h>

#include "ait/memory/heap.h"
#include "ait/memory/shared_arena.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

/// Says what it was asked for.
class RecordingResource final : public MemoryResource {
 public:
  MemoryProperties properties() const override { return {.name = "recording"}; }
  std::size_t bytes = 0;
  std::size_t alignment = 0;
  int calls = 0;

 private:
  StatusOr<void*> DoAllocate(std::size_t asked_bytes, std::size_t asked_alignment) override {
    bytes = asked_bytes;
    alignment = asked_alignment;
    ++calls;
    return static_cast<void*>(this);
  }
  void DoDeallocate(void*, std::size_t asked_bytes, std::size_t asked_alignment) override {
    EXPECT_EQ(asked_bytes, bytes);
    EXPECT_EQ(asked_alignment, alignment);
    ++calls;
  }
};

TEST(MemoryResource, DerivedClassesSeeOnlyGoodRequests) {
  RecordingResource resource;
  ASSERT_OK_AND_ASSIGN(void* const block, resource.Allocate(5, 1));
  EXPECT_EQ(resource.bytes, 5u);
  EXPECT_EQ(resource.alignment, MemoryResource::kMinAlignment);
  resource.Deallocate(block, 5, 1);
  EXPECT_EQ(resource.calls, 2);
  EXPECT_OK(resource.Allocate(0));
  EXPECT_FALSE(resource.Allocate(1, 48).ok());
  EXPECT_FALSE(resource.Allocate(SIZE_MAX).ok());
  resource.Deallocate(nullptr, 0);
  EXPECT_EQ(resource.calls, 2);
}

TEST(MemoryHandle, EmptyAllocatesNothingButAnError) {
  const MemoryHandle empty;
  EXPECT_FALSE(empty);
  EXPECT_THAT(empty.Allocate(8), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("empty")));
  EXPECT_EQ(empty.properties().name, "none");
  empty.Deallocate(nullptr, 0);
}

TEST(MemoryHandle, IsMadeFromAnyResourceAndComparesByIt) {
  const auto heap = HeapResource::Create();
  const MemoryHandle first = heap;
  const MemoryHandle second = heap;
  EXPECT_TRUE(first);
  EXPECT_TRUE(first == second);
  EXPECT_FALSE(first == MemoryHandle(HeapResource::Create()));
}

TEST(MemoryHandle, TellsWhatItsMemoryIs) {
  EXPECT_EQ(MemoryHandle(HeapResource::Create()).properties().sharing, Sharing::kThisProcess);
  ASSERT_OK_AND_ASSIGN(const MemoryHandle arena, SharedArena::Create({.capacity = Bytes(1)}));
  EXPECT_EQ(arena.properties().sharing, Sharing::kProcesses);
}

}  // namespace
}  // namespace ait
