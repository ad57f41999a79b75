// SPDX-License-Identifier: Apache-2.0
// Every resource in a process that forks, and in one that execs or ends while it holds memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ait/memory/failure_callback.h"
#include "ait/memory/guard.h"
#include "ait/memory/heap.h"
#include "ait/memory/limit.h"
#include "ait/memory/logging.h"
#include "ait/memory/pool.h"
#include "ait/memory/statistics.h"
#include "ait/memory/thread_safe.h"
#include "ait/memory/tracking.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;

struct Kind {
  std::string name;
  std::function<MemoryHandle()> make;
};

MemoryHandle Heap() { return HeapResource::Create(); }

std::vector<Kind> Kinds() {
  return {
      {"heap", Heap},
      {"guard", [] { return GuardResource::Create({.quarantine = MiB(16)}); }},
      {"pool", [] { return PoolResource::Create({.upstream = Heap()}).value(); }},
      {"statistics", [] { return StatisticsResource::Create(Heap()); }},
      {"tracking", [] { return TrackingResource::Create(Heap()); }},
      {"limit", [] { return LimitResource::Create(Heap(), {.limit = GiB(4)}).value(); }},
      {"logging",
       [] { return LoggingResource::Create(Heap(), {.writer = [](const AllocationEvent&) {}}); }},
      {"thread_safe", [] { return ThreadSafeResource::Create(Heap()); }},
      {"pool_under_a_lock",
       [] {
         return ThreadSafeResource::Create(PoolResource::Create({.upstream = Heap()}).value());
       }},
      {"stack",
       [] {
         return StatisticsResource::Create(
             LoggingResource::Create(ThreadSafeResource::Create(TrackingResource::Create(Heap())),
                                     {.writer = [](const AllocationEvent&) {}}));
       }},
  };
}

/// Takes blocks of several sizes, writes and checks them, gives them back. How many were wrong.
int UseMemory(const MemoryHandle& memory, int seed) {
  int wrong = 0;
  for (const std::size_t bytes : {std::size_t{300}, std::size_t{70'000}, std::size_t{600'000}}) {
    StatusOr<void*> block = memory.Allocate(bytes);
    if (!block.ok()) return ++wrong;
    std::memset(*block, seed, bytes);
    const auto* const read = static_cast<const unsigned char*>(*block);
    wrong += read[0] != seed || read[bytes - 1] != seed;
    memory.Deallocate(*block, bytes);
  }
  return wrong;
}

class Fork : public ::testing::TestWithParam<Kind> {};

#ifdef __SANITIZE_ADDRESS__
constexpr bool kMallocIsForkSafe = false;  // that of AddressSanitizer is not, up to GCC 13
#else
constexpr bool kMallocIsForkSafe = true;
#endif

TEST_P(Fork, AChildAllocatesThoughOtherThreadsDidAtTheMomentOfTheFork) {
  if (!kMallocIsForkSafe) GTEST_SKIP() << "malloc itself leaves its locks taken in a child";
  const MemoryHandle memory = GetParam().make();
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 1; i <= 3; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) EXPECT_EQ(UseMemory(memory, i), 0);
    });
  }
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(UseMemory(memory, 99) == 0 ? 7 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status) << " in round "
                                   << round << "; 14 is a child that hangs";
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
  stop = true;
}

TEST_P(Fork, EachSideHasItsOwnCopyAfterIt) {
  const MemoryHandle memory = GetParam().make();
  constexpr std::size_t kBytes = 600'000;
  auto* const block = static_cast<unsigned char*>(memory.Allocate(kBytes).value());
  std::memset(block, 5, kBytes);
  const pid_t child = fork();
  if (child == 0) {
    const bool same = block[kBytes - 1] == 5;
    std::memset(block, 6, kBytes);
    memory.Deallocate(block, kBytes);
    _exit(same && UseMemory(memory, 8) == 0 ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_EQ(block[0], 5);
  EXPECT_EQ(block[kBytes - 1], 5);
  memory.Deallocate(block, kBytes);
  EXPECT_EQ(UseMemory(memory, 9), 0);
}

TEST_P(Fork, ABlockOfAThreadThatEndedIsGivenBackByAnother) {
  const MemoryHandle memory = GetParam().make();
  std::vector<void*> blocks;
  std::thread([&] {
    const MemoryLabel label("a thread");
    for (int i = 0; i < 100; ++i) blocks.push_back(memory.Allocate(1000).value());
  }).join();
  std::thread([&] {
    for (void* const block : blocks) memory.Deallocate(block, 1000);
  }).join();
  EXPECT_EQ(UseMemory(memory, 1), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, Fork, ::testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST(EndOfTheProcess, StaticAndThreadLocalBlocksMayBeFreedInAnyOrder) {
  Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"static"}})
      .ExpectExit(0, "main is over");
}

TEST(EndOfTheProcess, ExecWhileThreadsAllocateLeavesNothingBehind) {
  Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"exec"}})
      .ExpectExit(0, "after exec: no descriptor");
}

}  // namespace
}  // namespace ait
