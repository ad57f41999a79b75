// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/adaptor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/shared_arena.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;

/// The example of the header.
class ZeroingResource final : public MemoryAdaptor {
 public:
  explicit ZeroingResource(MemoryHandle upstream) : MemoryAdaptor("zeroing", std::move(upstream)) {}

 private:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    AIT_ASSIGN_OR_RETURN(void* const block, upstream().Allocate(bytes, alignment));
    std::memset(block, 0, bytes);
    return block;
  }
};

/// Passes everything on.
class PlainAdaptor final : public MemoryAdaptor {
 public:
  PlainAdaptor(std::string kind, MemoryHandle upstream)
      : MemoryAdaptor(std::move(kind), std::move(upstream)) {}
};

/// Says that it is memory of a device on a node; has none.
class ElsewhereResource final : public MemoryResource {
 public:
  MemoryProperties properties() const override {
    return {.name = "elsewhere",
            .sharing = Sharing::kProcesses,
            .residence = Residence::kDevice,
            .node = 3};
  }

 private:
  StatusOr<void*> DoAllocate(std::size_t, std::size_t) override {
    return ResourceExhaustedError("elsewhere has nothing");
  }
  void DoDeallocate(void*, std::size_t, std::size_t) override {}
};

TEST(MemoryAdaptor, HasThePropertiesOfWhatLiesBelowAndANameThatShowsTheStack) {
  const MemoryHandle below = std::make_shared<ElsewhereResource>();
  const MemoryHandle stack =
      std::make_shared<PlainAdaptor>("b", std::make_shared<PlainAdaptor>("a", below));
  const MemoryProperties properties = stack.properties();
  EXPECT_EQ(properties.name, "b(a(elsewhere))");
  EXPECT_EQ(properties.sharing, Sharing::kProcesses);
  EXPECT_EQ(properties.residence, Residence::kDevice);
  EXPECT_EQ(properties.node, 3);
  EXPECT_EQ(HeapResource::Create()->properties().node, std::nullopt);
}

TEST(MemoryAdaptor, PassesCallsOnWithTheirArguments) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  const auto plain = std::make_shared<PlainAdaptor>("plain", counted);
  EXPECT_TRUE(plain->upstream() == MemoryHandle(counted));
  ASSERT_OK_AND_ASSIGN(void* const block, plain->Allocate(1000, 4096));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 4096, 0u);
  EXPECT_EQ(counted->statistics().current_bytes, 1000);
  plain->Deallocate(block, 1000, 4096);
  EXPECT_EQ(counted->statistics().current_bytes, 0);
}

TEST(MemoryAdaptor, PassesErrorsOn) {
  const auto plain = std::make_shared<PlainAdaptor>("plain", std::make_shared<ElsewhereResource>());
  EXPECT_THAT(plain->Allocate(1),
              StatusIs(StatusCode::kResourceExhausted, ::testing::HasSubstr("elsewhere")));
  const auto of_nothing = std::make_shared<PlainAdaptor>("plain", MemoryHandle());
  EXPECT_THAT(of_nothing->Allocate(1), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(of_nothing->properties().name, "plain(none)");
}

TEST(MemoryAdaptor, ADerivedClassChangesWhatItWants) {
  const auto heap = HeapResource::Create();
  const auto zeroing = std::make_shared<ZeroingResource>(heap);
  constexpr std::size_t kBytes = 1 << 20;
  {
    ASSERT_OK_AND_ASSIGN(HostBuffer used, HostBuffer::Create(heap, kBytes));
    std::memset(used.data(), 7, kBytes);
  }
  ASSERT_OK_AND_ASSIGN(HostBuffer buffer, HostBuffer::Create(zeroing, kBytes));
  EXPECT_EQ(static_cast<int>(buffer.bytes()[kBytes - 1]), 0) << "though the heap keeps its blocks";
}

TEST(MemoryAdaptor, KeepsWhatLiesBelowAlive) {
  std::weak_ptr<StatisticsResource> watched;
  MemoryHandle stack;
  {
    const auto counted = StatisticsResource::Create(HeapResource::Create());
    watched = counted;
    stack = std::make_shared<PlainAdaptor>("plain", counted);
  }
  EXPECT_FALSE(watched.expired());
  stack = MemoryHandle();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace ait
