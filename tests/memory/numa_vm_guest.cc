// SPDX-License-Identifier: Apache-2.0
// What runs inside the emulated machine of numa_vm_test: memory on real NUMA nodes. The suites are
// named after the machine that they need.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "ait/memory/numa.h"
#include "ait/topology/binding.h"
#include "ait/topology/machine.h"
#include "memory/numa_nodes_internal.h"
#include "support/forbidden_calls.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<long> kAllFour = {SYS_mbind, SYS_move_pages, SYS_set_mempolicy,
                                    SYS_get_mempolicy};
constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A resource with small chunks, whose large blocks (above 4 MiB) are mappings of their own.
std::shared_ptr<NumaResource> Make(NumaOptions options) {
  options.chunk = MiB(16);
  auto memory = NumaResource::Create(options);
  EXPECT_OK(memory);
  return memory.ok() ? *memory : nullptr;
}

/// Takes and fills a block, and expects all of it on `node`.
void ExpectOnNode(const std::shared_ptr<NumaResource>& memory, std::size_t bytes, int node,
                  const std::string& source = "move_pages") {
  ASSERT_NE(memory, nullptr);
  ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(bytes));
  std::memset(block, 1, bytes);
  const PlacementReport report = memory->Verify(block, bytes);
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
  EXPECT_EQ(report.source, source);
  EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{node, Bytes(static_cast<std::int64_t>(bytes))}}))
      << report.ToString();
  memory->Deallocate(block, bytes);
}

/// Expects the shares of a block of `bytes` within 2 % of it.
void ExpectShares(const std::shared_ptr<NumaResource>& memory, std::size_t bytes,
                  const std::map<int, double>& shares) {
  ASSERT_NE(memory, nullptr);
  ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(bytes));
  const PlacementReport report = memory->Verify(block, bytes);
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
  for (const auto& [node, share] : shares) {
    ASSERT_TRUE(report.by_node.contains(node)) << report.ToString();
    EXPECT_NEAR(static_cast<double>(report.by_node.at(node).value()) / static_cast<double>(bytes),
                share, 0.02)
        << "node " << node << ", " << report.ToString();
  }
  memory->Deallocate(block, bytes);
  memory->Trim();
}

void ExpectEachNodePlaced(const NodeSet& nodes) {
  for (PageKind pages : {PageKind::kSmall, PageKind::kTransparentHuge}) {
    for (NumaPolicy policy : {NumaPolicy::kPreferred, NumaPolicy::kStrict}) {
      for (int node : nodes) {
        const auto memory = Make({.policy = policy, .nodes = {node}, .pages = pages});
        ExpectOnNode(memory, 5000, node);
        ExpectOnNode(memory, 3 * kMiB, node);
        ExpectOnNode(memory, 9 * kMiB, node);  // a mapping of its own
        const PlacementReport all = memory->Verify();
        EXPECT_EQ(all.verdict, PlacementVerdict::kVerified) << all.ToString();
      }
    }
  }
}

/// Each thread gets memory of the node that it runs on, also when another freed it before.
void ExpectLocal(const NodeSet& nodes) {
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine());
  const auto memory = Make({.policy = NumaPolicy::kLocal});
  for (int round = 0; round < 2; ++round) {
    for (int node : nodes) {
      std::jthread([&] {
        ASSERT_OK(BindThisThread(machine.FindNode(node)->cpus));
        ExpectOnNode(memory, kMiB, node);
        ExpectOnNode(memory, 9 * kMiB, node);
      }).join();
    }
  }
}

TEST(TwoNodes, EachNodeGetsItsMemory) { ExpectEachNodePlaced({0, 1}); }

TEST(TwoNodes, LocalMemoryFollowsTheThread) { ExpectLocal({0, 1}); }

TEST(TwoNodes, InterleavedHalfAndHalf) {
  const NumaOptions options = {.policy = NumaPolicy::kInterleave, .pages = PageKind::kSmall};
  EXPECT_EQ(Make(options)->nodes(), (NodeSet{0, 1}));
  ExpectShares(Make(options), 48 * kMiB, {{0, 0.5}, {1, 0.5}});
  ExpectShares(Make(options), kMiB, {{0, 0.5}, {1, 0.5}});
  ExpectShares(Make({.policy = NumaPolicy::kInterleave}), 64 * kMiB, {{0, 0.5}, {1, 0.5}});
}

TEST(TwoNodes, WeightsAreKeptByLargeAndBySmallBlocks) {
  const NumaOptions options = {.policy = NumaPolicy::kWeighted, .nodes = {0, 1}, .weights = {3, 1}};
  ExpectShares(Make(options), 48 * kMiB, {{0, 0.75}, {1, 0.25}});
  ExpectShares(Make(options), 130 * kMiB, {{0, 0.75}, {1, 0.25}});

  const auto memory = Make(options);
  std::map<int, double> bytes;
  for (int i = 0; i < 400; ++i) {
    const std::size_t size = 1000 + static_cast<std::size_t>(i) * 97 % 100'000;
    ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(size));
    for (const auto& [node, part] : memory->Verify(block, size).by_node) {
      bytes[node] += static_cast<double>(part.value());
    }
  }
  EXPECT_NEAR(bytes[0] / (bytes[0] + bytes[1]), 0.75, 0.02);
}

TEST(TwoNodes, AFullNodeGivesWayOrIsAnError) {
  const std::size_t there =
      static_cast<std::size_t>(internal::AvailableOnNode({}, 1).value_or(Bytes(0)).value());
  ASSERT_GT(there, 80 * kMiB);
  const std::size_t bytes = there + 48 * kMiB;
  {
    const auto strict = Make({.policy = NumaPolicy::kStrict, .nodes = {1}});
    EXPECT_THAT(strict->Allocate(bytes),
                testing::StatusIs(StatusCode::kResourceExhausted,
                                  AllOf(HasSubstr("NUMA node 1 has "), HasSubstr("kPreferred"))));
    ExpectOnNode(strict, there / 2, 1);
  }
  const auto preferred = Make({.nodes = {1}});
  ASSERT_OK_AND_ASSIGN(void* const block, preferred->Allocate(bytes));
  std::memset(block, 1, bytes);
  const PlacementReport report = preferred->Verify(block, bytes);
  EXPECT_EQ(report.verdict, PlacementVerdict::kWrong) << report.ToString();
  EXPECT_GT(report.by_node.at(0), MiB(16)) << report.ToString();
  EXPECT_GT(report.by_node.at(1).value(), static_cast<std::int64_t>(there / 2))
      << report.ToString();
  EXPECT_THAT(report.reason, HasSubstr("lie on node 0, not on node 1"));
  {
    const auto strict = Make({.policy = NumaPolicy::kStrict, .nodes = {1}});
    EXPECT_THAT(strict->Allocate(48 * kMiB), testing::StatusIs(StatusCode::kResourceExhausted));
  }
  preferred->Deallocate(block, bytes);
  preferred->Trim();
  ExpectOnNode(Make({.policy = NumaPolicy::kStrict, .nodes = {1}}), 48 * kMiB, 1);
}

TEST(TwoNodes, StrictMemoryIsTakenUpToTheLastPiece) {
  const auto strict =
      Make({.policy = NumaPolicy::kStrict, .nodes = {1}, .pages = PageKind::kSmall});
  std::vector<void*> blocks;
  Status full;
  while (full.ok() && blocks.size() < 1000) {
    const StatusOr<void*> block = strict->Allocate(20 * kMiB);
    full = block.status();
    if (block.ok()) blocks.push_back(*block);
  }
  EXPECT_THAT(full, testing::StatusIs(StatusCode::kResourceExhausted));
  EXPECT_GT(blocks.size(), 5u);
  const PlacementReport report = strict->Verify();
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
  for (void* block : blocks) strict->Deallocate(block, 20 * kMiB);
}

void Write(const std::string& path, std::string_view text) {
  std::ofstream file(path);
  file << text << std::flush;
  EXPECT_TRUE(file) << path;
}

TEST(TwoNodes, ReservedHugePagesAreTakenFromTheirNode) {
  const std::string pool = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages";
  Write(pool, "8");
  const NumaOptions options = {
      .policy = NumaPolicy::kStrict, .nodes = {1}, .pages = PageKind::kReservedHuge};
  {
    const auto memory = Make(options);
    ExpectOnNode(memory, 3 * kMiB, 1);
    EXPECT_EQ(memory->counters().reserved_huge, memory->counters().mapped);
    const Status missing = memory->Allocate(24 * kMiB).status();
    EXPECT_THAT(missing, testing::StatusIs(
                             StatusCode::kResourceExhausted,
                             AllOf(HasSubstr(": 4 are missing"), HasSubstr("echo 12 > " + pool))));
    Write(pool, "12");  // as the error says
    ExpectOnNode(memory, 24 * kMiB, 1);
    EXPECT_EQ(memory->counters().shortages, 0);
  }
  NumaOptions fall_back = options;
  fall_back.shortage = HugePageShortage::kUseTransparent;
  const auto memory = Make(fall_back);
  ExpectOnNode(memory, 40 * kMiB, 1);
  EXPECT_EQ(memory->counters().shortages, 1);
  EXPECT_EQ(memory->counters().reserved_huge, Bytes(0));
  Write(pool, "0");
}

TEST(TwoNodes, WithoutMovePagesThePlacementIsReadFromNumaMaps) {
  testing::ExpectInChild({SYS_move_pages}, EPERM, [] {
    const auto memory = Make({.nodes = {1}});
    EXPECT_FALSE(memory->capabilities().query.is_allowed);
    EXPECT_THAT(memory->capabilities().query.reason, HasSubstr("not permitted"));
    EXPECT_TRUE(memory->capabilities().bind.is_allowed);
    ExpectOnNode(memory, 3 * kMiB, 1, "/proc/self/numa_maps");
    ExpectOnNode(memory, 9 * kMiB, 1, "/proc/self/numa_maps");
  });
}

TEST(TwoNodes, WithoutMbindTheFirstTouchPlaces) {
  testing::ExpectInChild({SYS_mbind}, EPERM, [] {
    for (int node : {0, 1}) {
      for (NumaPolicy policy : {NumaPolicy::kPreferred, NumaPolicy::kStrict}) {
        const auto memory = Make({.policy = policy, .nodes = {node}});
        EXPECT_FALSE(memory->capabilities().bind.is_allowed);
        ExpectOnNode(memory, 3 * kMiB, node);
        ExpectOnNode(memory, 9 * kMiB, node);
        EXPECT_EQ(memory->counters().bindings, 0);
      }
    }
    ExpectShares(Make({.policy = NumaPolicy::kInterleave, .pages = PageKind::kSmall}), 48 * kMiB,
                 {{0, 0.5}, {1, 0.5}});
    ExpectShares(Make({.policy = NumaPolicy::kWeighted, .nodes = {0, 1}, .weights = {1, 4}}),
                 130 * kMiB, {{0, 0.2}, {1, 0.8}});
  });
}

TEST(TwoNodes, WithoutAllFourThePlacementHoldsAndIsProved) {
  testing::ExpectInChild(kAllFour, EPERM, [] {
    const NumaCapabilities capabilities = ProbeNuma();
    EXPECT_FALSE(capabilities.bind.is_allowed);
    EXPECT_FALSE(capabilities.move.is_allowed);
    EXPECT_FALSE(capabilities.query.is_allowed);
    EXPECT_FALSE(capabilities.thread_policy.is_allowed);
    for (int node : {0, 1}) {
      const auto memory = Make({.nodes = {node}});
      ExpectOnNode(memory, 9 * kMiB, node, "/proc/self/numa_maps");
    }
    ExpectLocal({});
    ExpectShares(Make({.policy = NumaPolicy::kInterleave}), 64 * kMiB, {{0, 0.5}, {1, 0.5}});
  });
}

TEST(TwoNodes, AForkedChildAllocatesOnTheSameNode) {
  const auto memory = Make({.nodes = {1}});
  ExpectOnNode(memory, 3 * kMiB, 1);
  testing::ExpectInChild({}, 0, [&] {
    ExpectOnNode(memory, 3 * kMiB, 1);
    ExpectOnNode(memory, 9 * kMiB, 1);
  });
}

TEST(FourNodes, EachNodeGetsItsMemory) { ExpectEachNodePlaced({0, 1, 2, 3}); }

TEST(FourNodes, LocalMemoryFollowsTheThread) { ExpectLocal({0, 1, 2, 3}); }

TEST(FourNodes, InterleavedInQuarters) {
  ExpectShares(Make({.policy = NumaPolicy::kInterleave, .pages = PageKind::kSmall}), 48 * kMiB,
               {{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}});
  ExpectShares(Make({.policy = NumaPolicy::kInterleave, .nodes = {1, 3}}), 64 * kMiB,
               {{1, 0.5}, {3, 0.5}});
}

TEST(FourNodes, WeightsAreKept) {
  ExpectShares(
      Make({.policy = NumaPolicy::kWeighted, .nodes = {0, 1, 2, 3}, .weights = {1, 2, 3, 4}}),
      100 * kMiB, {{0, 0.1}, {1, 0.2}, {2, 0.3}, {3, 0.4}});
}

TEST(FourNodes, SeveralNodesMayBePreferred) {
  const auto memory = Make({.nodes = {2, 3}});
  ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(40 * kMiB));
  const PlacementReport report = memory->Verify(block, 40 * kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
  memory->Deallocate(block, 40 * kMiB);
}

TEST(FourNodes, WithoutAllFourThePlacementHoldsAndIsProved) {
  testing::ExpectInChild(kAllFour, EPERM, [] {
    for (int node : {0, 1, 2, 3}) {
      ExpectOnNode(Make({.nodes = {node}}), 9 * kMiB, node, "/proc/self/numa_maps");
    }
  });
}

// Node 0 as usual, node 1 CPUs alone, nodes 2 and 3 memory alone.
TEST(OddNodes, DefaultsTakeNodesOfCpusAndMemory) {
  EXPECT_EQ(Make({.policy = NumaPolicy::kInterleave})->nodes(), NodeSet{0});
  EXPECT_EQ(Make({.policy = NumaPolicy::kLocal})->nodes(), NodeSet{0});
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine());
  std::jthread([&] {
    ASSERT_OK(BindThisThread(machine.FindNode(1)->cpus));
    ExpectOnNode(Make({}), 3 * kMiB, 0);  // the nearest with memory
    ExpectOnNode(Make({.policy = NumaPolicy::kLocal}), 3 * kMiB, 0);
  }).join();
}

TEST(OddNodes, NodesWithoutMemoryAreRefused) {
  EXPECT_THAT(NumaResource::Create({.nodes = {1}}),
              testing::StatusIs(StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("node 1 has no memory"), HasSubstr("0,2-3"))));
  EXPECT_THAT(NumaResource::Create({.nodes = {4}}),
              testing::StatusIs(StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("node 4 does not exist"), HasSubstr("0,2-3"))));
}

TEST(OddNodes, NodesOfMemoryAloneServeWhenNamed) {
  for (int node : {2, 3}) {
    ExpectOnNode(Make({.nodes = {node}}), 3 * kMiB, node);
    ExpectOnNode(Make({.policy = NumaPolicy::kStrict, .nodes = {node}}), 9 * kMiB, node);
  }
  ExpectShares(
      Make({.policy = NumaPolicy::kInterleave, .nodes = {0, 2, 3}, .pages = PageKind::kSmall}),
      48 * kMiB, {{0, 1 / 3.0}, {2, 1 / 3.0}, {3, 1 / 3.0}});
}

TEST(OddNodes, WithoutMbindPagesAreMovedToNodesWithoutCpus) {
  testing::ExpectInChild({SYS_mbind}, EPERM,
                         [] { ExpectOnNode(Make({.nodes = {2}}), 20 * kMiB, 2); });
}

TEST(OddNodes, WithoutAllFourTheReportSaysThatItIsElsewhere) {
  testing::ExpectInChild(kAllFour, EPERM, [] {
    ASSERT_OK(BindThisThread({0}));  // a CPU of node 0
    const auto memory = Make({.nodes = {2}});
    ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(20 * kMiB));
    const PlacementReport report = memory->Verify(block, 20 * kMiB);
    EXPECT_EQ(report.verdict, PlacementVerdict::kWrong) << report.ToString();
    EXPECT_THAT(report.reason, AllOf(HasSubstr("lie on node 0, not on node 2"),
                                     HasSubstr("binding is forbidden")));
    memory->Deallocate(block, 20 * kMiB);
  });
}

}  // namespace
}  // namespace ait
