// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/tracking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::shared_ptr<TrackingResource> Tracked(const TrackingOptions& options = {}) {
  return TrackingResource::Create(HeapResource::Create(), options);
}

HostBuffer Take(const MemoryHandle& memory, std::size_t bytes) {
  return HostBuffer::Create(memory, bytes).value();
}

class Lines final : public LogSink {
 public:
  void Write(Severity severity, std::string_view component, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    lines_.push_back(StrCat(Name(severity), " ", component, ": ", message));
  }
  std::vector<std::string> lines() const { return lines_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(TrackingResource, KnowsWhoHoldsHowMuchTheLargestFirst) {
  const auto tracked = Tracked();
  const HostBuffer none = Take(tracked, 10);
  std::optional<HostBuffer> weights;
  std::vector<HostBuffer> batches;
  {
    const MemoryLabel label("model");
    weights = Take(tracked, 5000);
  }
  {
    const MemoryLabel label("loader");
    for (int i = 0; i < 3; ++i) batches.push_back(Take(tracked, 1000));
  }
  EXPECT_THAT(tracked->Holders(),
              ElementsAre(MemoryHolder{"model", 5000, 1}, MemoryHolder{"loader", 3000, 3},
                          MemoryHolder{"unlabelled", 10, 1}));
  EXPECT_THAT(tracked->Largest(1), ElementsAre(MemoryHolder{"model", 5000, 1}));
  EXPECT_EQ(tracked->Largest(99).size(), 3u);
  EXPECT_THAT(tracked->Largest(0), IsEmpty());
  EXPECT_THAT(tracked->Largest(-1), IsEmpty());
  weights.reset();
  batches.pop_back();
  EXPECT_THAT(tracked->Holders(),
              ElementsAre(MemoryHolder{"loader", 2000, 2}, MemoryHolder{"unlabelled", 10, 1}));
}

TEST(TrackingResource, EqualHoldersAreInTheOrderOfTheirNames) {
  const auto tracked = Tracked();
  std::vector<HostBuffer> held;
  for (const char* name : {"c", "a", "b"}) {
    const MemoryLabel label(name);
    held.push_back(Take(tracked, 64));
  }
  EXPECT_THAT(tracked->Holders(), ElementsAre(MemoryHolder{"a", 64, 1}, MemoryHolder{"b", 64, 1},
                                              MemoryHolder{"c", 64, 1}));
}

TEST(TrackingResource, WhatFailedIsHeldByNobody) {
  const auto tracked = Tracked();
  EXPECT_FALSE(tracked->Allocate(MemoryResource::kMaxBytes).ok());
  EXPECT_THAT(tracked->Holders(), IsEmpty());
}

TEST(MemoryLabel, NestsAndEndsWithItsScope) {
  EXPECT_EQ(MemoryLabel::Current(), "");
  {
    const MemoryLabel outer("forward");
    {
      const MemoryLabel inner("attention");
      EXPECT_EQ(MemoryLabel::Current(), "forward/attention");
    }
    EXPECT_EQ(MemoryLabel::Current(), "forward");
  }
  EXPECT_EQ(MemoryLabel::Current(), "");
}

TEST(MemoryLabel, BelongsToItsThreadAndCanBeGivenToAnother) {
  const MemoryLabel label("trainer");
  std::thread([] { EXPECT_EQ(MemoryLabel::Current(), ""); }).join();
  std::thread([text = MemoryLabel::Current()] {
    const MemoryLabel inherited(text);
    EXPECT_EQ(MemoryLabel::Current(), "trainer");
  }).join();
}

TEST(MemoryLabel, OutlivesTheThreadAndTheTextItWasMadeFrom) {
  const auto tracked = Tracked();
  HostBuffer held;
  std::thread([&] {
    std::string text = "worker";
    const MemoryLabel label(text);
    held = Take(tracked, 100);
    text = "xxxxxx";
  }).join();
  EXPECT_THAT(tracked->Holders(), ElementsAre(MemoryHolder{"worker", 100, 1}));
}

TEST(TrackingResource, DescribesWhatIsHeld) {
  const auto tracked = Tracked();
  EXPECT_EQ(tracked->Describe(), "tracking(heap): 0 bytes in 0 blocks held");
  std::vector<HostBuffer> held;
  for (const auto& [name, bytes] :
       {std::pair("a", 300), std::pair("b", 200), std::pair("c", 100)}) {
    const MemoryLabel label(name);
    held.push_back(Take(tracked, static_cast<std::size_t>(bytes)));
  }
  EXPECT_EQ(tracked->Describe(1),
            "tracking(heap): 600 bytes in 3 blocks held\n"
            "  a: 300 bytes in 1 block\n"
            "  2 more: 300 bytes in 2 blocks");
}

TEST(TrackingResource, SaysWhatHasLeakedAndWhereItWasTaken) {
  const auto tracked = Tracked({.stack_depth = 8});
  const MemoryLabel label("leaky");
  const HostBuffer small = Take(tracked, 10);
  const HostBuffer large = Take(tracked, 1 << 20);
  const std::vector<HeldBlock> leaks = tracked->Leaks();
  ASSERT_EQ(leaks.size(), 2u);
  EXPECT_EQ(leaks[0].address, large.data());
  EXPECT_EQ(leaks[0].bytes, 1u << 20);
  EXPECT_EQ(leaks[0].label, "leaky");
  EXPECT_EQ(leaks[1].bytes, 10u);
  ASSERT_EQ(leaks[0].stack.size(), 8u);
  EXPECT_THAT(leaks[0].stack[7], HasSubstr("[0x")) << "at least the address is there";
  EXPECT_THAT(Tracked()->Leaks(), IsEmpty());
}

TEST(TrackingResource, KeepsNoMoreOfTheStackThanItShould) {
  const auto tracked = Tracked({.stack_depth = 1000});
  const HostBuffer held = Take(tracked, 10);
  EXPECT_LE(tracked->Leaks()[0].stack.size(), 64u);
  const auto without = Tracked();
  const HostBuffer other = Take(without, 10);
  EXPECT_THAT(without->Leaks()[0].stack, IsEmpty());
}

TEST(TrackingResource, LogsWhatIsStillHeldWhenItGoesAway) {
  Lines log;
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  auto tracked = TrackingResource::Create(counted, {.log = &log});
  void* block = nullptr;
  {
    const MemoryLabel label("lost");
    block = tracked->Allocate(123).value();
  }
  tracked.reset();
  EXPECT_THAT(log.lines(),
              ElementsAre("warning memory: tracking(statistics(heap)) goes away while lost holds "
                          "123 bytes in 1 block"));
  counted->Deallocate(block, 123);

  tracked = TrackingResource::Create(counted, {.log = &log});
  tracked->Deallocate(tracked->Allocate(5).value(), 5);
  tracked.reset();
  EXPECT_EQ(log.lines().size(), 1u);
}

TEST(TrackingResource, CountsBlocksThatAreNotOutAndPassesThemNotOn) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  const auto tracked = TrackingResource::Create(counted);
  int foreign = 0;
  tracked->Deallocate(&foreign, sizeof(foreign));
  void* const block = tracked->Allocate(1000).value();
  tracked->Deallocate(block, 1000);
  tracked->Deallocate(block, 1000);
  EXPECT_EQ(tracked->unmatched_count(), 2);
  EXPECT_EQ(counted->statistics().current_count, 0);
}

TEST(TrackingResource, LosesNothingWhenThreadsAllocateAtOnce) {
  const auto tracked = Tracked();
  std::vector<HostBuffer> kept(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      threads.emplace_back([&, i] {
        const MemoryLabel label(StrCat("thread ", i));
        for (int j = 0; j < 500; ++j) kept[i] = Take(tracked, 64 + i);
      });
    }
  }
  EXPECT_THAT(tracked->Holders(),
              ElementsAre(MemoryHolder{"thread 3", 67, 1}, MemoryHolder{"thread 2", 66, 1},
                          MemoryHolder{"thread 1", 65, 1}, MemoryHolder{"thread 0", 64, 1}));
  kept.clear();
  EXPECT_THAT(tracked->Holders(), IsEmpty());
  EXPECT_EQ(tracked->unmatched_count(), 0);
}

}  // namespace
}  // namespace ait
