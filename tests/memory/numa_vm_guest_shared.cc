// SPDX-License-Identifier: Apache-2.0
// More of what runs inside the emulated machine of numa_vm_test: shared arenas and pinned memory.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "ait/memory/buffer.h"
#include "ait/memory/pinned.h"
#include "ait/memory/shared_arena.h"
#include "ait/topology/binding.h"
#include "ait/topology/machine.h"
#include "support/forbidden_calls.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr ArenaReservation kReservations[] = {ArenaReservation::kAtCreation,
                                              ArenaReservation::kAtAllocation};

void ExpectOnNode(const PlacementReport& report, std::size_t bytes, int node) {
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
  EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{node, Bytes(static_cast<std::int64_t>(bytes))}}))
      << report.ToString();
}

void ExpectArenaOnNode(const SharedArenaOptions& options, int node) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create(options));
  for (const std::size_t bytes : {kMiB, 9 * kMiB}) {
    ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(bytes, 4096));
    std::memset(block, 1, bytes);
    ExpectOnNode(arena->Verify(block, bytes), bytes, node);
  }
}

TEST(TwoNodes, ASharedArenaLiesOnItsNode) {
  for (const ArenaReservation reservation : kReservations) {
    for (const int node : {0, 1}) {
      ExpectArenaOnNode({.capacity = MiB(24), .reservation = reservation, .node = node}, node);
    }
  }
}

TEST(TwoNodes, ASharedArenaLiesOnItsNodeWithoutMbind) {
  for (const ArenaReservation reservation : kReservations) {
    testing::ExpectInChild({SYS_mbind}, EPERM, [&] {
      for (const int node : {0, 1}) {
        ExpectArenaOnNode({.capacity = MiB(24), .reservation = reservation, .node = node}, node);
      }
    });
  }
}

TEST(TwoNodes, EachRankHasItsPartOfASharedArena) {
  for (const ArenaReservation reservation : kReservations) {
    ASSERT_OK_AND_ASSIGN(const auto arena,
                         SharedArena::Create({.capacity = MiB(16), .reservation = reservation}));
    ASSERT_OK(arena->Place(MiB(0), 8 * kMiB, 1));
    ASSERT_OK(arena->Place(MiB(8), 8 * kMiB, 0));
    for (const int node : {1, 0}) {
      ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(8 * kMiB));
      ExpectOnNode(arena->Verify(block, 8 * kMiB), 8 * kMiB, node);
    }
  }
}

TEST(TwoNodes, APartOfASharedArenaMovesWithWhatItHolds) {
  for (const ArenaReservation reservation : kReservations) {
    ASSERT_OK_AND_ASSIGN(
        const auto arena,
        SharedArena::Create({.capacity = MiB(16), .reservation = reservation, .node = 0}));
    ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(4 * kMiB));
    std::memset(block, 7, 4 * kMiB);
    ASSERT_OK(arena->Place(arena->OffsetOf(block, 1).value(), 4 * kMiB, 1));
    ExpectOnNode(arena->Verify(block, 4 * kMiB), 4 * kMiB, 1);
    EXPECT_EQ(static_cast<char*>(block)[4 * kMiB - 1], 7);
  }
}

TEST(TwoNodes, PinnedMemoryLiesOnItsNode) {
  const auto no_gpu = DeviceRuntime::Open({.library = "/nowhere"});
  for (const int node : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(const auto memory, PinnedResource::Create({.node = node, .gpus = no_gpu}));
    EXPECT_EQ(memory->properties().node, node);
    for (const std::size_t bytes : {std::size_t{4096}, 3 * kMiB}) {
      ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(bytes, 4096));
      ExpectOnNode(VerifyPlacement(block, bytes, {.nodes = {node}}), bytes, node);
      memory->Deallocate(block, bytes, 4096);
    }
    EXPECT_EQ(memory->counters().misplaced, Bytes(0));
  }
}

TEST(TwoNodes, PinnedMemoryFollowsTheThreadAndStaysOnItsNode) {
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine());
  const auto memory =
      PinnedResource::Create({.gpus = DeviceRuntime::Open({.library = "/nowhere"})}).value();
  for (int round = 0; round < 3; ++round) {
    for (const int node : {0, 1}) {
      std::jthread([&] {
        ASSERT_OK(BindThisThread(machine.FindNode(node)->cpus));
        ASSERT_OK_AND_ASSIGN(const HostBuffer buffer, HostBuffer::Create(memory, 3 * kMiB));
        ExpectOnNode(VerifyPlacement(buffer.data(), 3 * kMiB, {.nodes = {node}}), 3 * kMiB, node);
      }).join();
    }
  }
  EXPECT_EQ(memory->counters().locks, 2) << "one block for each node, reused there";
  EXPECT_EQ(memory->counters().misplaced, Bytes(0));
}

}  // namespace
}  // namespace ait
