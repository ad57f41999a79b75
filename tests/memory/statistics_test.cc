// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/statistics.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

std::shared_ptr<StatisticsResource> Counted() {
  return StatisticsResource::Create(HeapResource::Create());
}

HostBuffer Take(const MemoryHandle& memory, std::size_t bytes) {
  return HostBuffer::Create(memory, bytes).value();
}

TEST(StatisticsResource, CountsWhatIsHeldItsPeakAndItsTotal) {
  const auto counted = Counted();
  HostBuffer a = Take(counted, 100);
  HostBuffer b = Take(counted, 50);
  a = HostBuffer();
  HostBuffer c = Take(counted, 20);
  EXPECT_EQ(counted->statistics(), (MemoryStatistics{.current_bytes = 70,
                                                     .peak_bytes = 150,
                                                     .total_bytes = 170,
                                                     .current_count = 2,
                                                     .peak_count = 2,
                                                     .total_count = 3}));
}

/// Whose deallocation looks at the statistics, as another thread could that takes the block again.
class Watching final : public MemoryResource {
 public:
  MemoryProperties properties() const override { return {.name = "watching"}; }
  std::shared_ptr<StatisticsResource> counted;
  std::int64_t bytes_at_deallocation = -1;

 private:
  StatusOr<void*> DoAllocate(std::size_t, std::size_t) override {
    return static_cast<void*>(block_);
  }
  void DoDeallocate(void*, std::size_t, std::size_t) override {
    bytes_at_deallocation = counted->statistics().current_bytes;
  }
  alignas(kMinAlignment) std::byte block_[1024] = {};
};

TEST(StatisticsResource, CountsABlockDownBeforeAnotherCanHaveIt) {
  const auto watching = std::make_shared<Watching>();
  watching->counted = StatisticsResource::Create(watching);
  {
    const HostBuffer buffer = Take(watching->counted, 1000);
  }
  EXPECT_EQ(watching->bytes_at_deallocation, 0);
  watching->counted = nullptr;
}

TEST(StatisticsResource, CountsFailuresApart) {
  const auto counted = Counted();
  EXPECT_FALSE(counted->Allocate(MemoryResource::kMaxBytes).ok());
  EXPECT_EQ(counted->statistics(), MemoryStatistics{.failed_count = 1});
  const auto of_nothing = StatisticsResource::Create(MemoryHandle());
  EXPECT_FALSE(of_nothing->Allocate(1).ok());
  EXPECT_EQ(of_nothing->statistics().failed_count, 1);
}

TEST(StatisticsResource, SaysWhatItCounts) {
  EXPECT_EQ(Counted()->properties().name, "statistics(heap)");
  EXPECT_EQ(StatisticsResource::Create(Counted())->properties().name,
            "statistics(statistics(heap))");
}

TEST(StatisticsScope, CountsFromItsBeginning) {
  const auto counted = Counted();
  HostBuffer before = Take(counted, 1000);
  StatisticsScope scope(counted);
  EXPECT_EQ(scope.statistics(), MemoryStatistics());
  HostBuffer inside = Take(counted, 30);
  inside = HostBuffer();
  before = HostBuffer();
  EXPECT_EQ(scope.statistics(), (MemoryStatistics{.current_bytes = -1000,
                                                  .peak_bytes = 30,
                                                  .total_bytes = 30,
                                                  .current_count = -1,
                                                  .peak_count = 1,
                                                  .total_count = 1}));
}

TEST(StatisticsScope, InnerPeaksAreInTheOuterScopeToo) {
  const auto counted = Counted();
  StatisticsScope outer(counted);
  const HostBuffer held = Take(counted, 10);
  {
    StatisticsScope inner(counted);
    HostBuffer peak = Take(counted, 500);
    EXPECT_EQ(inner.statistics().peak_bytes, 500);
  }
  {
    StatisticsScope inner(counted);
    HostBuffer small = Take(counted, 7);
    EXPECT_EQ(inner.statistics().peak_bytes, 7) << "the peak before it is not its own";
  }
  EXPECT_EQ(outer.statistics().peak_bytes, 510);
  EXPECT_EQ(outer.statistics().peak_count, 2);
}

TEST(StatisticsScope, MayOverlapInAnyOrder) {
  const auto counted = Counted();
  std::optional<StatisticsScope> first(std::in_place, counted);
  const HostBuffer a = Take(counted, 1);
  std::optional<StatisticsScope> second(std::in_place, counted);
  const HostBuffer b = Take(counted, 2);
  EXPECT_EQ(first->statistics().total_bytes, 3);
  first.reset();
  const HostBuffer c = Take(counted, 4);
  EXPECT_EQ(second->statistics().total_bytes, 6);
  EXPECT_EQ(second->statistics().peak_bytes, 6);
}

TEST(StatisticsResource, LosesNothingWhenThreadsAllocateAtOnce) {
  const auto counted = Counted();
  StatisticsScope scope(counted);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        StatisticsScope mine(counted);
        for (int j = 0; j < 1000; ++j) Take(counted, 64);
      });
    }
  }
  const MemoryStatistics statistics = scope.statistics();
  EXPECT_EQ(statistics.total_count, 4000);
  EXPECT_EQ(statistics.total_bytes, 256'000);
  EXPECT_EQ(statistics.current_bytes, 0);
  EXPECT_GE(statistics.peak_count, 1);
  EXPECT_LE(statistics.peak_count, 4);
}

}  // namespace
}  // namespace ait
