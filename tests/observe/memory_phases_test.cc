// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/memory_phases.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

/// Memory that is resident from here to the end of the scope, whatever malloc does.
class Touched {
 public:
  explicit Touched(Bytes bytes) : bytes_(static_cast<std::size_t>(bytes.value())) {
    block_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(block_, MAP_FAILED);
    std::memset(block_, 1, bytes_);
  }
  ~Touched() { ::munmap(block_, bytes_); }
  Touched(const Touched&) = delete;
  Touched& operator=(const Touched&) = delete;

 private:
  const std::size_t bytes_;
  void* block_;
};

/// Memory that is what the test says.
struct Counter {
  std::int64_t now = 0;
  MemorySource source() {
    return [this] { return MemoryUse{.now = Bytes(now), .peak = {}}; };
  }
};

TEST(MemoryPhases, EachPhaseHasWhatItBeganAndEndedWith) {
  Counter live;
  MemoryPhases phases({.live = live.source()});
  EXPECT_FALSE(phases.current().has_value());
  live.now = 10;
  phases.Begin(MemoryPhase::kForward);
  EXPECT_EQ(phases.current(), MemoryPhase::kForward);
  live.now = 50;
  phases.Begin(MemoryPhase::kBackward);
  live.now = 30;
  phases.End();
  EXPECT_FALSE(phases.current().has_value());
  live.now = 20;
  const StepMemory step = phases.EndStep();

  const MemoryLevel& forward = step.of(MemoryPhase::kForward).live;
  EXPECT_EQ(forward.begin, Bytes(10));
  EXPECT_EQ(forward.end, Bytes(50));
  EXPECT_EQ(forward.peak, Bytes(50));
  const MemoryLevel& backward = step.of(MemoryPhase::kBackward).live;
  EXPECT_EQ(backward.begin, Bytes(50));
  EXPECT_EQ(backward.end, Bytes(30));
  EXPECT_EQ(backward.peak, Bytes(50));
  EXPECT_EQ(step.live.begin, Bytes(0));
  EXPECT_EQ(step.live.end, Bytes(20));
  EXPECT_EQ(step.live.peak, Bytes(50));
  EXPECT_EQ(step.of(MemoryPhase::kForward).times, 1);
  EXPECT_EQ(step.of(MemoryPhase::kLoad).times, 0);
  EXPECT_EQ(step.largest(), MemoryPhase::kForward);
}

TEST(MemoryPhases, WhatNobodyTellsIsUnknownAndNotZero) {
  MemoryPhases phases(
      {.live = []() -> MemoryUse { throw std::runtime_error("who knows"); }, .proc = "/nowhere"});
  phases.Begin(MemoryPhase::kForward);
  const StepMemory step = phases.EndStep();
  for (const MemoryLevel& level :
       {step.resident, step.live, step.device, step.of(MemoryPhase::kForward).resident,
        step.of(MemoryPhase::kForward).live}) {
    EXPECT_FALSE(level.begin.has_value());
    EXPECT_FALSE(level.end.has_value());
    EXPECT_FALSE(level.peak.has_value());
  }
  EXPECT_FALSE(step.largest().has_value());
}

TEST(MemoryPhases, MicroBatchesAddUpInOneStepAndTheNextBeginsAnew) {
  Counter device;
  MemoryPhases phases({.device = device.source()});
  for (const std::int64_t most : {5, 9, 7}) {
    device.now = 1;
    phases.Begin(MemoryPhase::kForward);
    device.now = most;
    phases.Begin(MemoryPhase::kBackward);
    device.now = 2;
  }
  const StepMemory step = phases.EndStep();
  EXPECT_EQ(step.of(MemoryPhase::kForward).times, 3);
  EXPECT_EQ(step.of(MemoryPhase::kForward).device.begin, Bytes(1));
  EXPECT_EQ(step.of(MemoryPhase::kForward).device.end, Bytes(7));
  EXPECT_EQ(step.of(MemoryPhase::kForward).device.peak, Bytes(9));

  // The phase that was open goes on in the next step.
  EXPECT_EQ(phases.current(), MemoryPhase::kBackward);
  device.now = 4;
  const StepMemory next = phases.EndStep();
  EXPECT_EQ(next.of(MemoryPhase::kForward).times, 0);
  EXPECT_FALSE(next.of(MemoryPhase::kForward).device.peak.has_value());
  EXPECT_EQ(next.of(MemoryPhase::kBackward).device.begin, Bytes(2));
  EXPECT_EQ(next.of(MemoryPhase::kBackward).device.peak, Bytes(4));
}

TEST(MemoryPhases, AStepCanBeLookedAtBeforeItIsOver) {
  Counter live;
  MemoryPhases phases({.live = live.source()});
  phases.Begin(MemoryPhase::kForward);
  live.now = 5;
  const StepMemory so_far = phases.SoFar();
  EXPECT_EQ(so_far.of(MemoryPhase::kForward).live.end, Bytes(5));
  live.now = 3;
  const StepMemory step = phases.EndStep();
  EXPECT_EQ(step.of(MemoryPhase::kForward).times, 1);
  EXPECT_EQ(step.of(MemoryPhase::kForward).live.peak, Bytes(5));
  EXPECT_EQ(step.of(MemoryPhase::kForward).live.end, Bytes(3));
}

TEST(MemoryPhases, AStatisticsResourceHasExactPeaksOfEachPhase) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  ASSERT_OK_AND_ASSIGN(const HostBuffer weights, HostBuffer::Create(counted, 1000));
  MemoryPhases phases({.live = LiveBytesOf(counted)});
  phases.Begin(MemoryPhase::kForward);
  {
    ASSERT_OK_AND_ASSIGN(const HostBuffer gone, HostBuffer::Create(counted, 5000));
  }
  phases.Begin(MemoryPhase::kBackward);
  {
    ASSERT_OK_AND_ASSIGN(const HostBuffer gone, HostBuffer::Create(counted, 300));
  }
  const StepMemory step = phases.EndStep();
  EXPECT_EQ(step.of(MemoryPhase::kForward).live.peak, Bytes(6000));
  EXPECT_EQ(step.of(MemoryPhase::kForward).live.end, Bytes(1000));
  EXPECT_EQ(step.of(MemoryPhase::kBackward).live.peak, Bytes(1300));
  EXPECT_EQ(step.live.peak, Bytes(6000));
}

TEST(MemoryPhases, ResidentMemoryIsThatOfTheProcess) {
  MemoryPhases phases;
  phases.Begin(MemoryPhase::kForward);
  const Touched held(MiB(64));
  const StepMemory step = phases.EndStep();
  const MemoryLevel& resident = step.of(MemoryPhase::kForward).resident;
  ASSERT_TRUE(resident.begin && resident.end && resident.peak);
  EXPECT_GE(resident.end->value() - resident.begin->value(), MiB(60).value());
  EXPECT_GE(*resident.peak, *resident.end);
}

TEST(MemoryPhases, APeakAboveAllBeforeIsSeenWithoutASampler) {
  MemoryPhases phases;
  phases.Begin(MemoryPhase::kForward);
  {
    const Touched gone(MiB(256));
  }  // more than any other test here
  const StepMemory step = phases.EndStep();
  const MemoryLevel& resident = step.of(MemoryPhase::kForward).resident;
  ASSERT_TRUE(resident.begin && resident.peak);
  EXPECT_GE(resident.peak->value() - resident.begin->value(), MiB(250).value());
}

TEST(MemoryPhases, TheKernelsMarkFindsThePeakOfEveryPhase) {
  MemoryPhases phases({.peaks = MemoryPeaks::kKernel});
  if (phases.peaks() != MemoryPeaks::kKernel) GTEST_SKIP() << phases.fallback();
  std::vector<std::int64_t> above;
  for (const std::int64_t size : {64, 8, 32}) {
    phases.Begin(MemoryPhase::kForward);
    {
      const Touched gone{MiB(size)};
    }
    const StepMemory step = phases.EndStep();
    const MemoryLevel& resident = step.of(MemoryPhase::kForward).resident;
    ASSERT_TRUE(resident.begin && resident.peak);
    above.push_back((resident.peak->value() - resident.begin->value()) >> 20);
  }
  // The kernel counts pages in batches per CPU: a few may be missing.
  EXPECT_NEAR(static_cast<double>(above[0]), 64, 3);
  EXPECT_NEAR(static_cast<double>(above[1]), 8, 3);
  EXPECT_NEAR(static_cast<double>(above[2]), 32, 3);
}

TEST(MemoryPhases, WhereTheMarkCannotBeSetBackItSaysWhyAndGoesOn) {
  MemoryPhases phases({.peaks = MemoryPeaks::kKernel, .proc = "/nowhere"});
  EXPECT_EQ(phases.peaks(), MemoryPeaks::kMarks);
  EXPECT_NE(phases.fallback().find("/nowhere/self/clear_refs"), std::string::npos);
}

TEST(MemoryPhases, TheSamplerSeesWhatIsGoneAtTheMarks) {
  std::atomic<std::int64_t> now = 1;
  std::atomic<int> asked = 0;
  MemoryPhases phases({.live =
                           [&] {
                             ++asked;
                             return MemoryUse{.now = Bytes(now.load()), .peak = {}};
                           },
                       .peaks = MemoryPeaks::kSampled,
                       .sample_interval = std::chrono::microseconds(100)});
  ASSERT_EQ(phases.peaks(), MemoryPeaks::kSampled);
  phases.Begin(MemoryPhase::kBackward);
  now = 700;
  const int before = asked;
  while (asked < before + 2) std::this_thread::yield();  // the second has seen the 700
  now = 2;
  const StepMemory step = phases.EndStep();
  EXPECT_EQ(step.of(MemoryPhase::kBackward).live.peak, Bytes(700));
  EXPECT_EQ(step.of(MemoryPhase::kBackward).live.end, Bytes(2));
}

TEST(MemoryPhases, EveryPhaseHasAName) {
  for (std::size_t i = 0; i < kMemoryPhaseCount; ++i)
    EXPECT_NE(Name(static_cast<MemoryPhase>(i)), "unknown");
  EXPECT_EQ(Name(MemoryPhase::kCommunication), "communication");
}

}  // namespace
}  // namespace ait
