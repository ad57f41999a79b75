// SPDX-License-Identifier: Apache-2.0
// Parts of a shared arena on NUMA nodes: on a made machine, and on this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "ait/memory/shared_arena.h"
#include "memory/arena_placer_internal.h"
#include "memory/fake_numa_machine.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::FakeNumaMachine;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class ArenaPlacement : public ::testing::TestWithParam<ArenaReservation> {
 protected:
  StatusOr<std::shared_ptr<SharedArena>> Make(SharedArenaOptions options = {}) {
    options.capacity = MiB(16);
    options.reservation = GetParam();
    options.roots = machine_.roots();
    return SharedArenaMaker::Make(options, machine_);
  }

  /// Blocks that lie over a part and its neighbours.
  void ExpectEachPieceOnItsNode() {
    ASSERT_OK_AND_ASSIGN(const auto arena, Make({.node = 0}));
    ASSERT_OK(arena->Place(MiB(4), 4 * kMiB, 2));
    ASSERT_OK_AND_ASSIGN(void* const before, arena->Allocate(6 * kMiB));
    ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(4 * kMiB));
    ASSERT_EQ(arena->OffsetOf(block, 1).value(), MiB(6));
    PlacementReport report = arena->Verify(before, 6 * kMiB);
    EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
    EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{0, MiB(4)}, {2, MiB(2)}}));
    report = arena->Verify(block, 4 * kMiB);
    EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
    EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{0, MiB(2)}, {2, MiB(2)}}));
    ASSERT_OK(arena->Place(MiB(8), 2 * kMiB, 2));
    EXPECT_EQ(arena->Verify(block, 4 * kMiB).by_node, (std::map<int, Bytes>{{2, MiB(4)}}));
  }

  FakeNumaMachine machine_{{{.id = 0, .cpus = "0", .memory = GiB(1)},
                            {.id = 2, .cpus = "1", .memory = GiB(1)},
                            {.id = 5, .cpus = "2", .memory = Bytes(0)}}};
};

INSTANTIATE_TEST_SUITE_P(Reserved, ArenaPlacement,
                         ::testing::Values(ArenaReservation::kAtCreation,
                                           ArenaReservation::kAtAllocation),
                         [](const auto& kind) {
                           return kind.param == ArenaReservation::kAtCreation ? "AtCreation"
                                                                              : "AtAllocation";
                         });

TEST_P(ArenaPlacement, LiesOnTheNodeOfTheOptions) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Make({.node = 2}));
  EXPECT_EQ(arena->properties().node, 2);
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(3 * kMiB));
  const PlacementReport report = arena->Verify(block, 3 * kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
  EXPECT_EQ(report.by_node.at(2), MiB(3));
  arena->Deallocate(block, 3 * kMiB);
}

TEST_P(ArenaPlacement, LiesThereTooWhereBindingIsForbidden) {
  machine_.forbidden_bind = EPERM;
  ASSERT_OK_AND_ASSIGN(const auto arena, Make({.node = 2}));
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(3 * kMiB));
  EXPECT_EQ(arena->Verify(block, 3 * kMiB).verdict, PlacementVerdict::kVerified);
  EXPECT_EQ(machine_.current_node, 0) << "the thread is back where it was";
}

TEST_P(ArenaPlacement, WithoutAnyMeansItLiesSomewhereAndSaysSo) {
  machine_.forbidden_bind = EPERM;
  machine_.can_run_on = false;
  ASSERT_OK_AND_ASSIGN(const auto arena, Make({.node = 2}));
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(3 * kMiB));
  EXPECT_EQ(arena->Verify(block, 3 * kMiB).verdict, PlacementVerdict::kWrong);
}

TEST_P(ArenaPlacement, EachRankHasItsPartOnItsNode) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Make());
  ASSERT_OK(arena->Place(MiB(0), 8 * kMiB, 0));
  ASSERT_OK(arena->Place(MiB(8), 8 * kMiB, 2));
  ASSERT_OK_AND_ASSIGN(void* const first, arena->Allocate(8 * kMiB));
  ASSERT_OK_AND_ASSIGN(void* const second, arena->Allocate(8 * kMiB));
  EXPECT_EQ(arena->OffsetOf(second, 1).value(), MiB(8));
  EXPECT_EQ(arena->Verify(first, 8 * kMiB).ToString().substr(0, 29),
            "verified: 8388608 bytes on no");
  EXPECT_EQ(arena->Verify(first, 8 * kMiB).by_node.at(0), MiB(8));
  EXPECT_EQ(arena->Verify(second, 8 * kMiB).by_node.at(2), MiB(8));
  EXPECT_EQ(arena->Verify(second, 8 * kMiB).verdict, PlacementVerdict::kVerified);
}

TEST_P(ArenaPlacement, ABlockOverSeveralPartsIsHeldToEach) { ExpectEachPieceOnItsNode(); }

TEST_P(ArenaPlacement, ABlockOverSeveralPartsIsHeldToEachWhereBindingIsForbidden) {
  machine_.forbidden_bind = EPERM;
  ExpectEachPieceOnItsNode();
}

TEST_P(ArenaPlacement, WhatIsReservedAlreadyIsMovedAndKeepsWhatItHolds) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Make({.node = 0}));
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(4 * kMiB));
  std::memset(block, 7, 4 * kMiB);
  EXPECT_EQ(arena->Verify(block, 4 * kMiB).by_node.at(0), MiB(4));
  ASSERT_OK(arena->Place(arena->OffsetOf(block, 1).value(), 4 * kMiB, 2));
  EXPECT_EQ(arena->Verify(block, 4 * kMiB).by_node.at(2), MiB(4));
  EXPECT_EQ(static_cast<char*>(block)[0], 7);
  EXPECT_EQ(static_cast<char*>(block)[4 * kMiB - 1], 7);
}

TEST_P(ArenaPlacement, ForbiddenMovesAreAnError) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Make({.node = 0}));
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(4 * kMiB));
  machine_.forbidden_move = EPERM;
  EXPECT_THAT(arena->Place(arena->OffsetOf(block, 1).value(), 4 * kMiB, 2),
              StatusIs(StatusCode::kPermissionDenied,
                       HasSubstr("to node 2: move_pages: Operation not permitted")));
}

TEST_P(ArenaPlacement, RefusesNodesAndRangesThatAreNone) {
  EXPECT_THAT(Make({.node = 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("NUMA node 1 does not exist")));
  EXPECT_THAT(Make({.node = 5}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no memory")));
  ASSERT_OK_AND_ASSIGN(const auto arena, Make());
  EXPECT_THAT(arena->Place(Bytes(0), kMiB, 7), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(arena->Place(MiB(15), 2 * kMiB, 2), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(arena->Place(Bytes(-4096), kMiB, 2), StatusIs(StatusCode::kOutOfRange));
  EXPECT_OK(arena->Place(Bytes(100), 3000, 2)) << "no whole page, nothing to do";
  int foreign = 0;
  EXPECT_EQ(arena->Verify(&foreign, 4).verdict, PlacementVerdict::kUnverified);
  EXPECT_THAT(arena->Verify(&foreign, 4).reason, HasSubstr("no block"));
}

/// Bytes of huge pages in the mapping of a file whose name holds `name`, as smaps counts them.
std::int64_t HugeBytes(const std::string& name) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  std::int64_t kilobytes = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(' ') && line.find(':') > line.find(' ')) {
      inside = line.find(name) != std::string::npos;
    } else if (inside && line.starts_with("ShmemPmdMapped:")) {
      kilobytes += std::stoll(line.substr(15));
    }
  }
  return kilobytes * 1024;
}

TEST(ArenaHugePages, AreTakenWhereTheKernelHasThemAndOnlyIfAskedFor) {
  constexpr std::size_t kBytes = 16 * kMiB;
  for (const HugePages huge_pages : {HugePages::kNever, HugePages::kAdvise}) {
    ASSERT_OK_AND_ASSIGN(const auto arena,
                         SharedArena::Create({.capacity = MiB(32),
                                              .name = "ait-huge-pages",
                                              .reservation = ArenaReservation::kAtAllocation,
                                              .huge_pages = huge_pages}));
    ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(kBytes));
    std::memset(block, 1, kBytes);
    const std::int64_t huge = HugeBytes("ait-huge-pages");
    if (huge_pages == HugePages::kNever) {
      EXPECT_EQ(huge, 0);
    } else if (huge == 0) {
      GTEST_SKIP() << "this kernel has no huge pages for shared memory";
    }
  }
}

TEST(ArenaPlacementHere, IsVerifiedOrSaysWhyNot) {
  for (const auto reservation : {ArenaReservation::kAtCreation, ArenaReservation::kAtAllocation}) {
    const auto arena =
        SharedArena::Create({.capacity = MiB(16), .reservation = reservation, .node = 0});
    if (arena.status().code() == StatusCode::kInvalidArgument) GTEST_SKIP() << arena.status();
    ASSERT_OK(arena);
    ASSERT_OK_AND_ASSIGN(void* const block, (*arena)->Allocate(9 * kMiB));
    std::memset(block, 7, 9 * kMiB);
    const PlacementReport report = (*arena)->Verify(block, 9 * kMiB);
    EXPECT_TRUE(report.verdict == PlacementVerdict::kVerified || !report.reason.empty());
    EXPECT_EQ(static_cast<char*>(block)[9 * kMiB - 1], 7);
  }
}

}  // namespace
}  // namespace ait
