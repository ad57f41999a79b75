// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/pinned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "memory/fake_numa_machine.h"
#include "memory/page_lock_internal.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::HasSubstr;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Locks nothing, and tells of a machine with the nodes that the test says.
class FakeLock final : public internal::PageLock {
 public:
  int Lock(void* address, std::size_t bytes) override {
    if (error != 0) {
      if (before_failure) std::exchange(before_failure, nullptr)();
      return error;
    }
    EXPECT_TRUE(locked.emplace(address, bytes).second) << "locked twice";
    return 0;
  }
  void Unlock(void* address, std::size_t bytes) override {
    EXPECT_EQ(locked[address], bytes);
    locked.erase(address);
  }
  int NodeOf(void* address) override {
    const bool is_full = full_node == thread_node || (full_from && address >= full_from);
    const int node = memory_node.value_or(thread_node);
    return is_full ? 1 - node : node;
  }
  int CurrentNode() override { return thread_node; }

  std::map<void*, std::size_t> locked;
  int error = 0;
  std::function<void()> before_failure = nullptr;  // what other threads do meanwhile
  int thread_node = 0;
  int full_node = -1;                   // its pages lie on the other one
  void* full_from = nullptr;            // and those from here on
  std::optional<int> memory_node = {};  // where pages of this thread lie
};

std::shared_ptr<DeviceRuntime> NoGpu() { return DeviceRuntime::Open({.library = "/nowhere"}); }

class Pinned : public ::testing::Test {
 protected:
  std::shared_ptr<PinnedResource> Make(PinnedOptions options = {}) {
    if (!options.upstream) options.upstream = upstream_;
    options.gpus = NoGpu();
    return PinnedResourceMaker::Make(options, lock_).value();
  }

  FakeLock lock_;
  const std::shared_ptr<StatisticsResource> upstream_ =
      StatisticsResource::Create(HeapResource::Create());
};

TEST_F(Pinned, LocksWholePagesAndUnlocksThemBeforeTheyGoBack) {
  {
    const auto memory = Make({.max_cached = Bytes(0)});
    EXPECT_EQ(memory->method(), PinMethod::kLock);
    EXPECT_EQ(memory->properties().name, "pinned(statistics(heap))");
    ASSERT_OK_AND_ASSIGN(HostBuffer buffer, HostBuffer::Create(memory, 100'000));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
    ASSERT_EQ(lock_.locked.size(), 1u);
    EXPECT_EQ(lock_.locked[buffer.data()], 102'400u);
    buffer = HostBuffer();
    EXPECT_TRUE(lock_.locked.empty()) << "nothing may be kept";
    EXPECT_EQ(upstream_->statistics().current_bytes, 0);
    ASSERT_OK_AND_ASSIGN(buffer, HostBuffer::Create(memory, 10));
    EXPECT_EQ(lock_.locked.begin()->second, kMiB) << "a slab";
  }
  EXPECT_TRUE(lock_.locked.empty());
  EXPECT_EQ(upstream_->statistics().current_bytes, 0);
}

TEST_F(Pinned, SizesAreNotRoundedToPowersOfTwo) {
  const auto memory = Make();
  constexpr std::size_t kAsked = 2'304 * kMiB / 1024;  // 2.25 MiB, of which a power of two makes 4
  ASSERT_OK_AND_ASSIGN(const HostBuffer large, HostBuffer::Create(memory, kAsked));
  EXPECT_EQ(memory->counters().waste, Bytes(0));
  EXPECT_EQ(memory->counters().locked, Bytes(kAsked));
  ASSERT_OK_AND_ASSIGN(const HostBuffer odd, HostBuffer::Create(memory, 65 * kKiB + 1));
  ASSERT_OK_AND_ASSIGN(const HostBuffer small, HostBuffer::Create(memory, 1000));
  const PinnedCounters counters = memory->counters();
  EXPECT_EQ(counters.asked, Bytes(kAsked + 65 * kKiB + 1 + 1000));
  EXPECT_EQ(counters.waste, Bytes(4095 - 1024 + 24));
  EXPECT_EQ(counters.cached, Bytes(kMiB - 1024)) << "the rest of the slab";
  EXPECT_EQ(counters.locked, Bytes(kAsked + 68 * kKiB + kMiB));
}

TEST_F(Pinned, InSteadyStateNothingIsLockedAndNothingIsTakenFromBelow) {
  const auto memory = Make();
  const auto step = [&] {
    std::vector<HostBuffer> held;
    for (const std::size_t bytes : {100, 5000, 60'000, 70'000, 1'000'000, 5'000'000}) {
      held.push_back(HostBuffer::Create(memory, bytes).value());
      held.push_back(HostBuffer::Create(memory, bytes).value());
    }
  };
  step();
  const std::int64_t locks = memory->counters().locks;
  const std::int64_t taken = upstream_->statistics().total_count;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(memory->counters().locks, locks);
  EXPECT_EQ(upstream_->statistics().total_count, taken);
  EXPECT_EQ(memory->counters().asked, Bytes(0));
}

TEST_F(Pinned, ABlockServesRequestsThatAreALittleSmallerAndNoOthers) {
  const auto memory = Make();
  const auto pass = [&](std::size_t bytes) {
    return static_cast<const void*>(HostBuffer::Create(memory, bytes).value().data());
  };
  const void* const block = pass(900 * kKiB);
  EXPECT_EQ(pass(900 * kKiB), block);
  EXPECT_EQ(pass(800 * kKiB), block);
  EXPECT_EQ(memory->counters().locks, 1);
  EXPECT_NE(pass(796 * kKiB), block) << "more than an eighth would be lost";
  EXPECT_NE(pass(904 * kKiB), block);
  EXPECT_EQ(memory->counters().locks, 3);
  ASSERT_OK_AND_ASSIGN(const HostBuffer smaller, HostBuffer::Create(memory, 880 * kKiB));
  EXPECT_EQ(memory->counters().waste, KiB(20)) << "of 900 and 904 the one that fits best";
}

TEST_F(Pinned, ABlockOfOneNodeNeverServesAnother) {
  const auto memory = Make();
  const auto pass = [&](int node, std::size_t bytes) {
    lock_.thread_node = node;
    return static_cast<const void*>(HostBuffer::Create(memory, bytes).value().data());
  };
  for (const std::size_t bytes : {1000 * kKiB, kKiB}) {  // a block of its own, and a slab
    const void* const of_one = pass(1, bytes);
    const void* const of_zero = pass(0, bytes);
    EXPECT_NE(of_zero, of_one);
    EXPECT_EQ(pass(1, bytes), of_one);
    EXPECT_EQ(pass(0, bytes), of_zero);
  }
  EXPECT_EQ(memory->counters().locks, 4);
}

TEST_F(Pinned, ABlockGoesBackToItsOwnNodeWhoeverFreesIt) {
  const auto memory = Make();
  lock_.thread_node = 1;
  void* const block = memory->Allocate(kMiB).value();
  lock_.thread_node = 0;
  memory->Deallocate(block, kMiB);
  EXPECT_NE(memory->Allocate(kMiB).value(), block);
  lock_.thread_node = 1;
  EXPECT_EQ(memory->Allocate(kMiB).value(), block);
}

TEST_F(Pinned, WhatLiesElsewhereIsCountedAndNotKept) {
  const auto memory = Make();
  lock_.full_node = 0;
  for (const std::size_t bytes : {kMiB, kKiB}) {
    ASSERT_OK_AND_ASSIGN(HostBuffer buffer, HostBuffer::Create(memory, bytes));
    EXPECT_EQ(memory->counters().misplaced, Bytes(kMiB));
    buffer = HostBuffer();
    EXPECT_EQ(memory->counters().misplaced, Bytes(0));
    EXPECT_TRUE(lock_.locked.empty());
  }
  lock_.full_node = -1;
  ASSERT_OK_AND_ASSIGN(const HostBuffer buffer, HostBuffer::Create(memory, kMiB));
  EXPECT_EQ(memory->counters().misplaced, Bytes(0));
}

TEST_F(Pinned, ASlabThatLiesElsewhereServesOnlyWhileNoBetterCanBeHad) {
  const auto memory = Make();
  lock_.full_node = 0;
  ASSERT_OK_AND_ASSIGN(const HostBuffer first, HostBuffer::Create(memory, kKiB));
  ASSERT_OK_AND_ASSIGN(const HostBuffer second, HostBuffer::Create(memory, kKiB));
  EXPECT_EQ(memory->counters().misplaced, MiB(1)) << "not a slab for each block";
  EXPECT_EQ(lock_.locked.size(), 1u);
  lock_.full_node = -1;
  ASSERT_OK_AND_ASSIGN(const HostBuffer third, HostBuffer::Create(memory, kKiB));
  EXPECT_EQ(memory->counters().misplaced, MiB(1));
  EXPECT_EQ(memory->counters().locked, MiB(2)) << "a slab where it should be";
  lock_.error = ENOMEM;
  ASSERT_OK_AND_ASSIGN(const HostBuffer fourth, HostBuffer::Create(memory, kKiB));
  EXPECT_EQ(fourth.data(), third.data() + kKiB);
}

TEST_F(Pinned, ABlockWhoseEndLiesElsewhereIsMisplaced) {
  const auto memory = Make();
  void* const block = memory->Allocate(4 * kMiB).value();
  memory->Deallocate(block, 4 * kMiB);
  memory->Trim();
  lock_.full_from = static_cast<std::byte*>(block) + 4 * kMiB - 4096;
  const HostBuffer again = HostBuffer::Create(memory, 4 * kMiB).value();
  if (again.data() != block) GTEST_SKIP() << "the heap gave another block";
  EXPECT_EQ(memory->counters().misplaced, MiB(4));
}

TEST_F(Pinned, AThreadOnANodeWithoutMemoryTakesThatOfTheNearest) {
  testing::FakeNumaMachine machine({{.id = 0, .cpus = "0", .memory = GiB(1), .distance = "10 20"},
                                    {.id = 1, .cpus = "1", .distance = "20 10"}});
  const auto memory = Make({.roots = machine.roots()});
  lock_.thread_node = 1;
  lock_.memory_node = 0;
  for (const std::size_t bytes : {kMiB, kKiB}) {
    void* const block = memory->Allocate(bytes).value();
    EXPECT_EQ(memory->counters().misplaced, Bytes(0));
    memory->Deallocate(block, bytes);
    EXPECT_EQ(memory->Allocate(bytes).value(), block) << "kept for reuse";
  }
}

TEST_F(Pinned, KeepsNoMoreThanItMayAndDropsTheLongestUnused) {
  const auto memory = Make({.max_cached = MiB(3)});
  void* const first = memory->Allocate(2 * kMiB).value();
  void* const second = memory->Allocate(kMiB).value();
  void* const third = memory->Allocate(2 * kMiB).value();
  memory->Deallocate(first, 2 * kMiB);
  memory->Deallocate(second, kMiB);
  EXPECT_EQ(memory->counters().cached, MiB(3));
  memory->Deallocate(third, 2 * kMiB);
  EXPECT_EQ(memory->counters().cached, MiB(3)) << "the second and the third";
  EXPECT_FALSE(lock_.locked.contains(first));
  EXPECT_TRUE(lock_.locked.contains(second));
  EXPECT_TRUE(lock_.locked.contains(third));
}

TEST_F(Pinned, TrimGivesBackWhatNoBlockLiesIn) {
  const auto memory = Make();
  ASSERT_OK_AND_ASSIGN(HostBuffer small, HostBuffer::Create(memory, 10));
  {
    ASSERT_OK_AND_ASSIGN(const HostBuffer large, HostBuffer::Create(memory, 3 * kMiB));
  }
  EXPECT_EQ(memory->Trim(), MiB(3));
  EXPECT_EQ(memory->Trim(), Bytes(0)) << "the slab is in use";
  small = HostBuffer();
  EXPECT_EQ(memory->Trim(), MiB(1));
  EXPECT_EQ(memory->counters().locked, Bytes(0));
  EXPECT_EQ(upstream_->statistics().current_bytes, 0);
}

TEST_F(Pinned, GivesUpWhatItKeepsBeforeItFails) {
  const auto memory = Make();
  {
    ASSERT_OK_AND_ASSIGN(const HostBuffer kept, HostBuffer::Create(memory, 3 * kMiB));
  }
  lock_.error = ENOMEM;
  EXPECT_THAT(memory->Allocate(4 * kMiB),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr("cannot lock 4194304 bytes: mlock: Cannot allocate memory")));
  EXPECT_EQ(memory->counters().cached, Bytes(0));
  EXPECT_EQ(upstream_->statistics().current_bytes, 0) << "and what was to be locked went back";
}

TEST_F(Pinned, MayUsePageableMemoryInsteadAndCountsIt) {
  const auto memory = Make({.on_failure = PinFailure::kUsePageable});
  lock_.error = EAGAIN;
  {
    ASSERT_OK_AND_ASSIGN(HostBuffer buffer, HostBuffer::Create(memory, 2 * kMiB));
    buffer.Zero();
    const PinnedCounters counters = memory->counters();
    EXPECT_EQ(counters.pageable, MiB(2));
    EXPECT_EQ(counters.pageable_count, 1);
    EXPECT_EQ(counters.locked, Bytes(0));
    EXPECT_THAT(counters.pageable_reason, HasSubstr("mlock: "));
  }
  memory->Trim();
  EXPECT_EQ(memory->counters().pageable, Bytes(0));
  EXPECT_EQ(memory->counters().pageable_count, 1);
}

TEST_F(Pinned, WhatCouldNotBeLockedIsNotKept) {
  const auto memory = Make({.on_failure = PinFailure::kUsePageable});
  for (const std::size_t bytes : {2 * kMiB, kKiB}) {
    lock_.error = EAGAIN;
    ASSERT_OK(HostBuffer::Create(memory, bytes));
    EXPECT_EQ(memory->counters().pageable, Bytes(0));
    lock_.error = 0;
    ASSERT_OK(HostBuffer::Create(memory, bytes));
    EXPECT_EQ(memory->counters().pageable, Bytes(0));
  }
  EXPECT_EQ(memory->counters().locks, 2);
  EXPECT_EQ(memory->counters().cached, MiB(3));
}

TEST_F(Pinned, AnotherThreadsBlockServesWhenNoneCanBeMade) {
  const auto memory = Make();
  for (const std::size_t bytes : {2 * kMiB, 32 * kKiB}) {
    void* const block = memory->Allocate(bytes).value();
    if (bytes < kMiB) {  // the slab is full
      while (lock_.locked.size() < 2) (void)memory->Allocate(bytes).value();
      for (int i = 0; i < 31; ++i) (void)memory->Allocate(bytes).value();
    }
    lock_.error = ENOMEM;
    lock_.before_failure = [&] { memory->Deallocate(block, bytes); };
    EXPECT_EQ(memory->Allocate(bytes).value(), block);
    lock_.error = 0;
    lock_.before_failure = nullptr;
  }
}

TEST_F(Pinned, AForkedChildGetsAnErrorAndLeavesTheLocksAlone) {
  const auto memory = Make();
  void* const block = memory->Allocate(kMiB).value();
  const std::size_t locked = lock_.locked.size();
  const pid_t child = fork();
  if (child == 0) {
    const Status status = memory->Allocate(kMiB).status();
    memory->Deallocate(block, kMiB);
    const bool right = status.code() == StatusCode::kFailedPrecondition &&
                       memory->Trim() == Bytes(0) && lock_.locked.size() == locked;
    _exit(right ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  memory->Deallocate(block, kMiB);
}

TEST_F(Pinned, LeavesAloneWhatIsNotItsOwnOrFreeAlready) {
  const auto memory = Make();
  int foreign = 0;
  memory->Deallocate(&foreign, sizeof(foreign));
  for (const std::size_t bytes : {kMiB, kKiB}) {
    void* const block = memory->Allocate(bytes).value();
    memory->Deallocate(block, bytes);
    memory->Deallocate(block, bytes);
  }
  EXPECT_EQ(memory->counters().asked, Bytes(0));
  EXPECT_EQ(memory->counters().waste, Bytes(0));
}

/// A system whose process has no privilege and a low limit.
class Limited : public Pinned {
 protected:
  Limited() {
    std::filesystem::create_directories(folder_ / "proc/self");
    std::ofstream(folder_ / "proc/self/status")
        << "Cpus_allowed_list:\t0\nVmLck:\t    1024 kB\nCapEff:\t0000000000000000\n";
    std::ofstream(folder_ / "proc/self/limits")
        << "Limit                     Soft Limit           Hard Limit           Units     \n"
           "Max locked memory         8388608              8388608              bytes     \n";
    roots_ = {.proc = folder_ / "proc", .sys = folder_ / "sys"};
  }

  TempDir folder_;
  SystemRoots roots_;
};

TEST_F(Limited, TheErrorHasTheLimitTheNeedAndTheCommands) {
  const auto memory = Make({.roots = roots_});
  EXPECT_OK(HostBuffer::Create(memory, 7 * kMiB));
  EXPECT_THAT(
      memory->Allocate(7 * kMiB + 1),
      StatusIs(
          StatusCode::kResourceExhausted,
          HasSubstr("cannot lock 7344128 bytes: this process may lock 8388608 bytes (ulimit -l "
                    "is 8192), holds 1048576 locked and needs 8392704; raise it with `ulimit "
                    "-l 8196`, with \"memlock 8196\" in /etc/security/limits.conf, with "
                    "LimitMEMLOCK=8392704 in a systemd unit, or with --ulimit "
                    "memlock=8392704 for a container")));
}

TEST_F(Limited, PageableMemorySaysWhyToo) {
  const auto memory = Make({.on_failure = PinFailure::kUsePageable, .roots = roots_});
  ASSERT_OK_AND_ASSIGN(const HostBuffer buffer, HostBuffer::Create(memory, 10 * kMiB));
  EXPECT_EQ(memory->counters().pageable, MiB(10));
  EXPECT_THAT(memory->counters().pageable_reason, HasSubstr("ulimit -l is 8192"));
}

TEST_F(Limited, ThePrivilegeToLockLiftsTheLimit) {
  std::ofstream(folder_ / "proc/self/status")
      << "Cpus_allowed_list:\t0\nVmLck:\t    1024 kB\nCapEff:\t0000000000004000\n";
  EXPECT_OK(HostBuffer::Create(Make({.roots = roots_}), 100 * kMiB));
}

TEST(PinnedResource, RefusesWhatCannotBe) {
  for (const Bytes slab : {Bytes(0), KiB(127), Bytes(GiB(1).value() + 1)}) {
    EXPECT_THAT(PinnedResource::Create({.slab = slab}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(StrCat("memory of ", slab))));
  }
  EXPECT_THAT(PinnedResource::Create({.node = 777}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(PinnedResource::Create({.upstream = HeapResource::Create(), .node = 0}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("cannot pin on node 0 what heap puts on any node")));
}

TEST(PinnedResource, LimitsOfTheSystemAreErrorsOfTheAllocation) {
  Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"pinned-limit"}})
      .ExpectExit(0,
                  "RESOURCE_EXHAUSTED: cannot lock 2097152 bytes: this process may lock 1048576");
}

std::int64_t LockedNow() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

TEST(PinnedResource, LocksPagesOfTheSystem) {
  const auto memory = PinnedResource::Create({.gpus = NoGpu()}).value();
  const std::int64_t before = LockedNow();
  StatusOr<void*> block = memory->Allocate(4 * kMiB);
  if (block.status().code() == StatusCode::kResourceExhausted) GTEST_SKIP() << block.status();
  ASSERT_OK(block);
  EXPECT_EQ(LockedNow() - before, MiB(4).value());
  memory->Deallocate(*block, 4 * kMiB);
  EXPECT_EQ(memory->Trim(), MiB(4));
  EXPECT_EQ(LockedNow(), before);
}

}  // namespace
}  // namespace ait
