// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/thread_safe.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

/// Hands out slices of one block, front to back, without a lock.
class BumpResource final : public MemoryResource {
 public:
  MemoryProperties properties() const override { return {.name = "bump"}; }
  std::size_t used() const { return used_; }

 private:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    const std::size_t begin = (used_ + alignment - 1) / alignment * alignment;
    if (begin + bytes > sizeof(bytes_)) return ResourceExhaustedError("bump is used up");
    used_ = begin + bytes;
    return static_cast<void*>(bytes_ + begin);
  }
  void DoDeallocate(void*, std::size_t bytes, std::size_t) override { freed_ += bytes; }

  alignas(4096) std::byte bytes_[1 << 20];
  std::size_t used_ = 0;
  std::size_t freed_ = 0;
};

TEST(ThreadSafeResource, LetsThreadsUseAResourceThatHasNoLock) {
  const auto bump = std::make_shared<BumpResource>();
  const MemoryHandle memory = ThreadSafeResource::Create(bump);
  EXPECT_EQ(memory.properties().name, "thread-safe(bump)");
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 1000; ++j) EXPECT_OK(HostBuffer::Create(memory, 128));
      });
    }
  }
  EXPECT_EQ(bump->used(), 4u * 1000u * 128u) << "no two got the same bytes";
}

TEST(ThreadSafeResource, PassesErrorsOn) {
  const MemoryHandle memory = ThreadSafeResource::Create(std::make_shared<BumpResource>());
  EXPECT_THAT(memory.Allocate(2 << 20), testing::StatusIs(StatusCode::kResourceExhausted,
                                                          ::testing::HasSubstr("bump is used up")));
}

}  // namespace
}  // namespace ait
