// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Allocates and gives back.
void* Pass(HeapResource& heap, std::size_t bytes) {
  void* const block = heap.Allocate(bytes).value();
  heap.Deallocate(block, bytes);
  return block;
}

/// The VmFlags of the mapping that holds `address` (proc_pid_smaps(5)).
std::string FlagsOf(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::size_t begin = 0;
    std::size_t end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      inside = begin <= at && at < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

long PageFaults() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(HeapResource, KeepsALargeBlockForTheNextRequestOfItsSize) {
  const auto heap = HeapResource::Create();
  void* const block = heap->Allocate(8 * kMiB).value();
  std::memset(block, 1, 8 * kMiB);
  heap->Deallocate(block, 8 * kMiB);
  EXPECT_EQ(heap->cached(), MiB(8));
  EXPECT_EQ(heap->Allocate(8 * kMiB).value(), block);
  EXPECT_EQ(heap->cached(), Bytes(0));
  const long before = PageFaults();
  std::memset(block, 2, 8 * kMiB);
  EXPECT_LE(PageFaults() - before, 8) << "its pages are still there: 2048 of 4 KiB";
  heap->Deallocate(block, 8 * kMiB);
}

TEST(HeapResource, GivesTheBlockThatWasFreedLast) {
  const auto heap = HeapResource::Create();
  void* const first = heap->Allocate(kMiB).value();
  void* const second = heap->Allocate(kMiB).value();
  heap->Deallocate(first, kMiB);
  heap->Deallocate(second, kMiB);
  EXPECT_EQ(heap->Allocate(kMiB).value(), second);
  EXPECT_EQ(heap->Allocate(kMiB).value(), first);
  heap->Deallocate(first, kMiB);
  heap->Deallocate(second, kMiB);
}

TEST(HeapResource, RoundsUpByAnEighthAtMost) {
  const auto heap = HeapResource::Create({.max_cached = GiB(4)});
  for (std::size_t bytes = HeapResource::kLargeBlock; bytes < 100 * kMiB; bytes += bytes / 23 + 1) {
    Pass(*heap, bytes);
    const auto taken = static_cast<std::size_t>(heap->Trim().value());
    EXPECT_GE(taken, bytes);
    EXPECT_LE(taken, bytes + bytes / 8);
  }
}

TEST(HeapResource, SmallBlocksAreNotKept) {
  const auto heap = HeapResource::Create();
  Pass(*heap, HeapResource::kLargeBlock - 1);
  EXPECT_EQ(heap->cached(), Bytes(0));
}

TEST(HeapResource, KeepsNoMoreThanItMayAndDropsTheOldest) {
  const auto heap = HeapResource::Create({.max_cached = MiB(10)});
  void* const oldest = heap->Allocate(4 * kMiB).value();
  void* const middle = heap->Allocate(4 * kMiB).value();
  void* const newest = heap->Allocate(6 * kMiB).value();
  heap->Deallocate(oldest, 4 * kMiB);
  heap->Deallocate(middle, 4 * kMiB);
  heap->Deallocate(newest, 6 * kMiB);
  EXPECT_EQ(heap->cached(), MiB(10)) << "4 and 6, not the 4 before";
  EXPECT_EQ(heap->Allocate(6 * kMiB).value(), newest);
  EXPECT_EQ(heap->Allocate(4 * kMiB).value(), middle);
  heap->Deallocate(middle, 4 * kMiB);
  heap->Deallocate(newest, 6 * kMiB);

  Pass(*heap, 11 * kMiB);
  EXPECT_EQ(heap->cached(), MiB(10)) << "a block above the limit drops nothing for itself";
}

TEST(HeapResource, KeepsNothingIfItMayNot) {
  for (const std::int64_t limit : {0, -1}) {
    const auto heap = HeapResource::Create({.max_cached = Bytes(limit)});
    Pass(*heap, 4 * kMiB);
    EXPECT_EQ(heap->cached(), Bytes(0));
  }
}

TEST(HeapResource, TrimGivesAllBack) {
  const auto heap = HeapResource::Create();
  Pass(*heap, kMiB);
  Pass(*heap, 2 * kMiB);
  EXPECT_EQ(heap->Trim(), MiB(3));
  EXPECT_EQ(heap->cached(), Bytes(0));
  EXPECT_EQ(heap->Trim(), Bytes(0));
  Pass(*heap, kMiB);
}

TEST(HeapResource, BlocksFromTwoMiBOnStartOnAHugePageAndAskForIt) {
  for (const HugePages huge_pages : {HugePages::kAdvise, HugePages::kNever}) {
    const auto heap = HeapResource::Create({.huge_pages = huge_pages});
    for (const std::size_t bytes : {2 * kMiB, 3 * kMiB + 5, 20 * kMiB}) {
      void* const block = heap->Allocate(bytes).value();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (2 * kMiB), 0u);
      EXPECT_EQ(FlagsOf(block).find(" hg ") != std::string::npos, huge_pages == HugePages::kAdvise)
          << FlagsOf(block);
      heap->Deallocate(block, bytes);
    }
  }
}

TEST(HeapResource, AboveTheMemoryLimitIsAnError) {
  Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"heap-limit"}})
      .ExpectExit(0, "RESOURCE_EXHAUSTED: cannot allocate 1073741824 bytes from the heap");
}

TEST(HeapResource, GivesUpWhatItKeepsBeforeItFails) {
  Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"heap-trim"}})
      .ExpectExit(0, "kept 0, error 0");
}

}  // namespace
}  // namespace ait
