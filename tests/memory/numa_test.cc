// SPDX-License-Identifier: Apache-2.0
// NumaResource on machines made of files and tables, and on this one. numa_vm_test has real nodes.
#include "ait/memory/numa.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "memory/fake_numa_machine.h"
#include "memory/numa_placer_internal.h"
#include "support/forbidden_calls.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeNode;
using testing::FakeNumaMachine;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<FakeNode> Alike(const std::vector<int>& ids) {
  std::vector<FakeNode> nodes;
  for (int id : ids) {
    std::string distance;
    for (int other : ids) distance += id == other ? "10 " : "20 ";
    nodes.push_back({.id = id,
                     .cpus = StrCat(id * 2, "-", id * 2 + 1),
                     .memory = GiB(1),
                     .distance = distance});
  }
  return nodes;
}

StatusOr<std::shared_ptr<NumaResource>> TryMake(FakeNumaMachine& machine, NumaOptions options) {
  options.roots = machine.roots();
  return NumaResourceMaker::Make(options, machine);
}

std::shared_ptr<NumaResource> Make(FakeNumaMachine& machine, const NumaOptions& options) {
  auto memory = TryMake(machine, options);
  EXPECT_OK(memory);
  return memory.ok() ? *memory : nullptr;
}

/// Where the pages of a new block lie.
PlacementReport ReportOf(const std::shared_ptr<NumaResource>& memory, std::size_t bytes) {
  const StatusOr<void*> block = memory->Allocate(bytes);
  EXPECT_OK(block);
  if (!block.ok()) return {};
  PlacementReport report = memory->Verify(*block, bytes);
  memory->Deallocate(*block, bytes);
  return report;
}

void ExpectAllOn(int node, const std::shared_ptr<NumaResource>& memory) {
  for (std::size_t bytes : {std::size_t{100}, 3 * kMiB, 40 * kMiB}) {
    const PlacementReport report = ReportOf(memory, bytes);
    EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
    EXPECT_EQ(report.by_node,
              (std::map<int, Bytes>{{node, Bytes(static_cast<std::int64_t>(bytes))}}))
        << report.ToString();
  }
}

TEST(NumaResource, EveryNodeOfEveryMachineGetsItsMemory) {
  for (const std::vector<int>& ids :
       {std::vector{0}, {0, 1}, {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 2}, {1, 8, 200}}) {
    FakeNumaMachine machine(Alike(ids));
    for (int id : ids) {
      for (NumaPolicy policy : {NumaPolicy::kPreferred, NumaPolicy::kStrict}) {
        const auto memory = Make(machine, {.policy = policy, .nodes = {id}});
        ExpectAllOn(id, memory);
        EXPECT_EQ(memory->Verify().verdict, PlacementVerdict::kVerified);
      }
    }
  }
}

TEST(NumaResource, WithoutNodesItTakesThatOfTheThread) {
  FakeNumaMachine machine(Alike({1, 8, 200}));
  machine.current_node = 8;
  ExpectAllOn(8, Make(machine, {}));
  ExpectAllOn(8, Make(machine, {.policy = NumaPolicy::kStrict}));
  EXPECT_EQ(Make(machine, {})->properties().name, "numa(preferred, node 8)");
}

TEST(NumaResource, LocalMemoryFollowsTheThread) {
  FakeNumaMachine machine(Alike({0, 3, 5}));
  const auto memory = Make(machine, {.policy = NumaPolicy::kLocal});
  for (int round = 0; round < 2; ++round) {
    for (int node : {5, 0, 3}) {
      machine.current_node = node;
      ExpectAllOn(node, memory);
    }
  }
  EXPECT_EQ(memory->Verify().verdict, PlacementVerdict::kVerified);
}

TEST(NumaResource, InterleavesEvenly) {
  for (int forbidden : {0, EPERM}) {
    FakeNumaMachine machine(Alike({0, 2, 5}));
    machine.forbidden_bind = forbidden;
    const auto memory =
        Make(machine, {.policy = NumaPolicy::kInterleave, .pages = PageKind::kSmall});
    const PlacementReport report = ReportOf(memory, 30 * kMiB);
    EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
    EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{0, MiB(10)}, {2, MiB(10)}, {5, MiB(10)}}));
    ReportOf(memory, 3 * kMiB);
    EXPECT_EQ(memory->Verify().verdict, PlacementVerdict::kVerified) << memory->Verify().ToString();
  }
}

TEST(NumaResource, SplitsLargeBlocksByWeight) {
  for (int forbidden : {0, EPERM}) {
    FakeNumaMachine machine(Alike({0, 2, 5}));
    machine.forbidden_bind = forbidden;
    const auto memory = Make(machine, {.policy = NumaPolicy::kWeighted, .weights = {1, 2, 5}});
    const PlacementReport report = ReportOf(memory, 80 * kMiB);
    EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
    EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{0, MiB(10)}, {2, MiB(20)}, {5, MiB(50)}}));
    EXPECT_EQ(memory->counters().bindings, forbidden == 0 ? 3 : 0);
  }
}

TEST(NumaResource, DealsSmallBlocksOutByWeight) {
  FakeNumaMachine machine(Alike({0, 1}));
  const auto memory = Make(machine, {.policy = NumaPolicy::kWeighted, .weights = {3, 1}});
  std::map<int, double> bytes;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t size = 128 + i * 997 % 50'000;
    ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(size));
    const PlacementReport report = memory->Verify(block, size);
    ASSERT_EQ(report.by_node.size(), 1u) << "a small block lies on one node";
    bytes[report.by_node.begin()->first] += static_cast<double>(size);
  }
  EXPECT_NEAR(bytes[0] / (bytes[0] + bytes[1]), 0.75, 0.02);
}

TEST(NumaResource, SplitsExactlyAndInWholeGranules) {
  EXPECT_THAT(internal::SplitByWeight(100, {1, 1}, 10), ElementsAre(50, 100));
  EXPECT_THAT(internal::SplitByWeight(100, {1, 2}, 10), ElementsAre(30, 100));
  EXPECT_THAT(internal::SplitByWeight(105, {1, 1, 1}, 1), ElementsAre(35, 70, 105));
  EXPECT_THAT(internal::SplitByWeight(10, {1, 1, 8}, 10), ElementsAre(0, 0, 10));
}

// Defaults take nodes with CPUs and memory; others when they are named, or not at all.
std::vector<FakeNode> Odd() {
  return {{.id = 0, .cpus = "0-1", .memory = GiB(1), .distance = "10 30 20 20"},
          {.id = 1, .cpus = "2-3", .memory = Bytes(0), .distance = "30 10 20 20"},
          {.id = 4, .cpus = "", .memory = GiB(1), .distance = "20 15 10 20"},
          {.id = 9, .cpus = "4", .memory = GiB(1), .distance = "20 20 20 10"}};
}

TEST(NumaResource, NodesWithoutMemoryOrCpusFallAwayFromDefaults) {
  FakeNumaMachine machine(Odd());
  EXPECT_EQ(Make(machine, {.policy = NumaPolicy::kInterleave})->nodes(), (NodeSet{0, 9}));
  EXPECT_EQ(Make(machine, {.policy = NumaPolicy::kLocal})->nodes(), (NodeSet{0, 9}));
  machine.current_node = 1;  // no memory: the nearest that has, and CPUs
  ExpectAllOn(9, Make(machine, {}));
  ExpectAllOn(9, Make(machine, {.policy = NumaPolicy::kLocal}));
}

TEST(NumaResource, NodesWithoutCpusServeWhenNamed) {
  FakeNumaMachine machine(Odd());
  ExpectAllOn(4, Make(machine, {.nodes = {4}}));
  machine.forbidden_bind = EPERM;  // no thread can touch from there: pages are moved
  ExpectAllOn(4, Make(machine, {.nodes = {4}}));
  machine.forbidden_move = EPERM;
  const PlacementReport report = ReportOf(Make(machine, {.nodes = {4}}), kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kWrong);
  EXPECT_THAT(report.reason, AllOf(HasSubstr("lie on node 0, not on node 4"),
                                   HasSubstr("binding is forbidden (mbind: Operation not")));
}

TEST(NumaResource, NodesThatCannotServeAreNamedWithThoseThatCan) {
  FakeNumaMachine machine(Odd());
  EXPECT_THAT(TryMake(machine, {.nodes = {7}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("NUMA node 7 does not exist; nodes that can be used: 0,4,9")));
  EXPECT_THAT(TryMake(machine, {.policy = NumaPolicy::kInterleave, .nodes = {0, 1}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("NUMA node 1 has no memory")));
  machine.fixture().AddProc(GiB(64), "0-4", "0,4");
  EXPECT_THAT(TryMake(machine, {.nodes = {9}}),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("node 9 is outside the cpuset"), HasSubstr("used: 0,4"))));
  EXPECT_THAT(TryMake(machine, {.policy = NumaPolicy::kLocal, .nodes = {0}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("leave them out")));
}

TEST(NumaResource, WeightsThatDoNotFitAreRefused) {
  FakeNumaMachine machine(Alike({0, 1}));
  const auto make = [&](NumaPolicy policy, std::vector<int> weights) {
    return TryMake(machine, {.policy = policy, .weights = std::move(weights)}).status();
  };
  EXPECT_THAT(make(NumaPolicy::kWeighted, {1, 2, 3}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("3 weights were given for 2 NUMA nodes (0-1)")));
  EXPECT_THAT(make(NumaPolicy::kWeighted, {}), StatusIs(StatusCode::kInvalidArgument));
  for (int wrong : {0, -1, 1'000'001}) {
    EXPECT_THAT(make(NumaPolicy::kWeighted, {1, wrong}),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr(StrCat("weight of NUMA node 1 is ", wrong))));
  }
  EXPECT_THAT(make(NumaPolicy::kPreferred, {1, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("NumaPolicy::kWeighted")));
  EXPECT_OK(make(NumaPolicy::kWeighted, {1'000'000, 1}));
}

TEST(NumaResource, ChunkSizesOutOfRangeAreRefused) {
  FakeNumaMachine machine(Alike({0}));
  for (Bytes chunk : {Bytes(0), Bytes(-1), KiB(64), GiB(2000)}) {
    EXPECT_THAT(TryMake(machine, {.chunk = chunk}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(StrCat(chunk))));
  }
}

TEST(NumaResource, UnknownNodesStayUnknown) {
  FakeNumaMachine machine(Alike({0, 1}));
  machine.fixture().Remove("sys/devices/system/node");
  const auto memory = Make(machine, {});
  EXPECT_TRUE(memory->nodes().empty());
  const PlacementReport report = ReportOf(memory, kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kUnverified);
  EXPECT_THAT(report.reason, AllOf(HasSubstr("nodes are unknown"), HasSubstr("node/online")));
  EXPECT_EQ(memory->counters().bindings, 0);
  ExpectAllOn(1, Make(machine, {.nodes = {1}}));  // named: the kernel knows better
}

TEST(NumaResource, AFullNodeGivesWayUnlessStrict) {
  FakeNumaMachine machine(Alike({0, 1}));
  machine.SetFree(1, MiB(10));
  const auto strict = Make(machine, {.policy = NumaPolicy::kStrict, .nodes = {1}, .chunk = MiB(2)});
  EXPECT_THAT(strict->Allocate(20 * kMiB),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("20971520 bytes from numa(strict, node 1)"),
                             HasSubstr("NUMA node 1 has 10485760 bytes to give"),
                             HasSubstr("kPreferred"))));
  EXPECT_EQ(strict->counters().mappings, 0);
  const PlacementReport report = ReportOf(Make(machine, {.nodes = {1}}), 20 * kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kWrong);
  EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{0, MiB(10)}, {1, MiB(10)}}));
}

TEST(NumaResource, StrictMemoryThatRunsOutWhileItIsTouchedIsAnError) {
  FakeNumaMachine machine(Alike({0, 1}));
  const auto strict = Make(machine, {.policy = NumaPolicy::kStrict, .nodes = {1}});
  machine.SetFree(1, MiB(10));
  machine.fixture().Remove("sys/devices/system/node/node1/meminfo");  // so that it is not foreseen
  EXPECT_THAT(strict->Allocate(20 * kMiB),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("Cannot allocate memory")));
  EXPECT_EQ(strict->counters().mapped, Bytes(0));
  EXPECT_EQ(ReportOf(strict, 2 * kMiB).verdict, PlacementVerdict::kVerified);
}

TEST(NumaResource, StrictMemoryIsTakenFromAnyChunkWhosePagesExist) {
  constexpr std::size_t kHalf = kMiB / 2;
  FakeNumaMachine machine(Alike({0, 1}));
  const auto strict = Make(
      machine,
      {.policy = NumaPolicy::kStrict, .nodes = {1}, .pages = PageKind::kSmall, .chunk = MiB(4)});
  // Up to a chunk that is asked before the first one, and has pages that do not exist.
  std::vector<void*> blocks = {strict->Allocate(kHalf).value()};
  do {
    blocks.push_back(strict->Allocate(kHalf).value());
  } while (blocks.back() > blocks.front() && blocks.size() < 64);
  ASSERT_LT(blocks.back(), blocks.front());
  while (blocks.size() % 8 != 3) blocks.push_back(strict->Allocate(kHalf).value());
  machine.SetFree(1, Bytes(0));
  strict->Deallocate(blocks[1], kHalf);
  // What exists ahead in the last chunk (512 KiB), then the gap in the first, then none.
  for (int left = 2; left-- > 0;) {
    StatusOr<void*> block = strict->Allocate(kHalf);
    ASSERT_OK(block);
    EXPECT_EQ(*block == blocks[1], left == 0);
  }
  EXPECT_THAT(strict->Allocate(kHalf), StatusIs(StatusCode::kResourceExhausted));
}

TEST(NumaResource, AFillingChunkCallsTheSystemForTwoMebibytesAtATime) {
  for (const PageKind pages : {PageKind::kSmall, PageKind::kTransparentHuge}) {
    FakeNumaMachine machine(Alike({0}));
    const auto memory = Make(machine, {.pages = pages});
    ASSERT_OK(memory->Allocate(1000));
    const int calls = machine.calls;
    for (int i = 1; i < 4096; ++i) ASSERT_OK(memory->Allocate(1024));
    EXPECT_EQ(machine.calls - calls, 1) << "4 MiB";
  }
}

TEST(NumaResource, NoMoreExistsAheadThanANodeHas) {
  FakeNumaMachine machine(Alike({0, 1}));
  machine.SetFree(1, KiB(4096 + 8));
  const auto strict = Make(
      machine,
      {.policy = NumaPolicy::kStrict, .nodes = {1}, .pages = PageKind::kSmall, .chunk = MiB(4)});
  for (int i = 0; i < 2; ++i) ASSERT_OK(strict->Allocate(kMiB));
  machine.SetFree(1, KiB(8));
  EXPECT_OK(strict->Allocate(8192)) << "all there is";
  EXPECT_THAT(strict->Allocate(8192), StatusIs(StatusCode::kResourceExhausted));
}

TEST(NumaResource, ForbiddenBindingNeverFailsAnAllocation) {
  for (int error : {EPERM, ENOSYS}) {
    for (NumaPolicy policy : {NumaPolicy::kPreferred, NumaPolicy::kStrict}) {
      FakeNumaMachine machine(Alike({0, 1}));
      machine.forbidden_bind = error;
      const auto memory = Make(machine, {.policy = policy, .nodes = {1}});
      ExpectAllOn(1, memory);
      EXPECT_EQ(memory->counters().bindings, 0);
    }
  }
}

TEST(NumaResource, WithoutAnyWayItSaysThatMemoryIsElsewhere) {
  FakeNumaMachine machine(Alike({0, 1}));
  machine.forbidden_bind = machine.forbidden_move = EPERM;
  machine.can_run_on = false;
  const PlacementReport report = ReportOf(Make(machine, {.nodes = {1}}), kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kWrong);
  EXPECT_EQ(report.by_node.at(0), MiB(1));
}

TEST(NumaResource, SeveralPreferredNodesNeedNoNewKernel) {
  FakeNumaMachine machine(Alike({0, 1, 2}));
  EXPECT_EQ(ReportOf(Make(machine, {.nodes = {1, 2}}), kMiB).verdict, PlacementVerdict::kVerified);
  machine.has_preferred_many = false;
  EXPECT_EQ(ReportOf(Make(machine, {.nodes = {1, 2}}), kMiB).by_node.at(1), MiB(1));
}

TEST(NumaResource, AKernelThatCannotPopulateIsTouchedByHand) {
  FakeNumaMachine machine(Alike({0, 1}));
  machine.forbidden_populate = EINVAL;
  ExpectAllOn(1, Make(machine, {.nodes = {1}}));
}

TEST(NumaResource, PagesMayBeLeftToTheUser) {
  FakeNumaMachine machine(Alike({0, 1}));
  const auto memory = Make(machine, {.nodes = {1}, .first_touch = FirstTouch::kByUser});
  const PlacementReport report = ReportOf(memory, kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kUnverified);
  EXPECT_EQ(report.untouched, MiB(1));
  EXPECT_EQ(memory->counters().bindings, 1);
}

TEST(NumaResource, ReservedHugePagesThatAreMissingAreCountedWithTheCommand) {
  FakeNumaMachine machine(Alike({0, 1}));
  NumaOptions options = {.nodes = {1}, .pages = PageKind::kReservedHuge};
  EXPECT_THAT(Make(machine, options)->Allocate(kMiB),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("no reserved huge pages")));
  machine.SetHugePages(1, 5, 3);
  const auto memory = Make(machine, options);
  EXPECT_THAT(
      memory->Allocate(20 * kMiB),
      StatusIs(StatusCode::kResourceExhausted,
               AllOf(HasSubstr("node 1 has 3 of 5 reserved huge pages of 2 MiB free and 10"),
                     HasSubstr(": 7 are missing"), HasSubstr("echo 12 > "),
                     HasSubstr("node1/hugepages/hugepages-2048kB/nr_hugepages"))));
  EXPECT_EQ(ReportOf(memory, 3 * kMiB).verdict, PlacementVerdict::kVerified);
  EXPECT_EQ(memory->counters().reserved_huge, MiB(4)) << "a chunk that just fits";

  options.shortage = HugePageShortage::kUseTransparent;
  const auto fallen = Make(machine, options);
  EXPECT_EQ(ReportOf(fallen, 20 * kMiB).verdict, PlacementVerdict::kVerified);
  EXPECT_EQ(fallen->counters().shortages, 1);
  EXPECT_EQ(fallen->counters().reserved_huge, Bytes(0));
}

TEST(NumaResource, ASteadyStateMakesNoSystemCall) {
  for (NumaPolicy policy : {NumaPolicy::kPreferred, NumaPolicy::kInterleave, NumaPolicy::kWeighted,
                            NumaPolicy::kLocal}) {
    FakeNumaMachine machine(Alike({0, 1}));
    const auto memory =
        Make(machine,
             {.policy = policy,
              .weights = policy == NumaPolicy::kWeighted ? std::vector{1, 1} : std::vector<int>{}});
    const auto step = [&] {
      std::vector<std::pair<void*, std::size_t>> blocks;
      for (std::size_t bytes = 200; bytes < 100 * kMiB; bytes *= 3) {
        blocks.emplace_back(memory->Allocate(bytes).value(), bytes);
      }
      for (const auto& [block, bytes] : blocks) memory->Deallocate(block, bytes);
    };
    step();
    step();
    const int calls = machine.calls;
    for (int i = 0; i < 20; ++i) step();
    EXPECT_EQ(machine.calls, calls);
  }
}

TEST(NumaResource, ManyBlocksTakeFewMappingsEachBoundOnce) {
  FakeNumaMachine machine(Alike({0, 1}));
  const auto memory = Make(machine, {.nodes = {1}});
  const int probes = machine.binds;
  std::vector<void*> blocks;
  for (int i = 0; i < 5000; ++i) blocks.push_back(memory->Allocate(50'000).value());
  EXPECT_EQ(memory->counters().mappings, 4);  // 250 MB in chunks of 64 MiB
  EXPECT_EQ(machine.binds - probes, 4);
  EXPECT_EQ(memory->counters().bindings, 4);
  for (void* block : blocks) memory->Deallocate(block, 50'000);
  EXPECT_EQ(memory->counters().used, Bytes(0));
  EXPECT_EQ(memory->counters().cached, MiB(256));
  EXPECT_EQ(memory->Trim(), MiB(256));
  EXPECT_EQ(memory->counters().mappings, 0);
}

TEST(NumaResource, TrimKeepsWhatIsInUse) {
  FakeNumaMachine machine(Alike({0}));
  const auto memory = Make(machine, {.chunk = MiB(2)});
  ASSERT_OK_AND_ASSIGN(void* const small, memory->Allocate(1000));
  ASSERT_OK_AND_ASSIGN(void* const large, memory->Allocate(3 * kMiB));
  std::memset(small, 7, 1000);
  memory->Deallocate(large, 3 * kMiB);
  EXPECT_EQ(memory->Trim(), MiB(3));
  EXPECT_EQ(memory->Trim(), Bytes(0));
  EXPECT_EQ(static_cast<char*>(small)[999], 7);
  memory->Deallocate(small, 1000);
}

TEST(NumaResource, KeepsAtMostWhatItIsTold) {
  FakeNumaMachine machine(Alike({0}));
  const auto memory = Make(machine, {.chunk = MiB(2), .max_cached = MiB(10)});
  for (std::size_t mib : {4, 5, 6, 3}) {
    void* const block = memory->Allocate(mib * kMiB).value();
    memory->Deallocate(block, mib * kMiB);
    EXPECT_LE(memory->counters().cached, MiB(10));
  }
  EXPECT_EQ(memory->counters().cached, MiB(9)) << "6 and 3: the oldest went first";
}

TEST(NumaResource, MoreThanTheBudgetIsAnErrorThatNamesIt) {
  FakeNumaMachine machine(Alike({0}));
  machine.fixture().Write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 30720 kB\n");
  const auto memory = Make(machine, {});
  EXPECT_THAT(memory->Allocate(50 * kMiB),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("52428800 bytes"), HasSubstr("31457280 bytes are available"),
                             HasSubstr("/meminfo"))));
  EXPECT_EQ(ReportOf(memory, kMiB).verdict, PlacementVerdict::kVerified) << "a smaller chunk fits";
  EXPECT_EQ(memory->counters().mapped, MiB(2));
}

TEST(NumaResource, ForeignBlocksAreLeftAlone) {
  FakeNumaMachine machine(Alike({0}));
  const auto memory = Make(machine, {});
  char foreign[256];
  memory->Deallocate(foreign, sizeof(foreign));
  EXPECT_THAT(memory->Verify(foreign, sizeof(foreign)).reason, HasSubstr("not a block"));
  void* const block = memory->Allocate(1000).value();
  memory->Deallocate(block, 1000);
  memory->Deallocate(block, 1000);  // twice
  EXPECT_EQ(memory->counters().used, Bytes(0));
}

// From here on the system itself.

/// Mappings of this process.
int MappingCount() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

TEST(NumaResourceOfTheSystem, BlocksLieWhereTheReportSays) {
  ASSERT_OK_AND_ASSIGN(const auto memory, NumaResource::Create());
  if (memory->nodes().empty()) GTEST_SKIP() << "the kernel does not tell of nodes";
  for (std::size_t bytes : {std::size_t{1000}, kMiB, 20 * kMiB}) {
    ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(bytes));
    std::memset(block, 1, bytes);
    const PlacementReport report = memory->Verify(block, bytes);
    EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
    EXPECT_EQ(report.untouched, Bytes(0));
    memory->Deallocate(block, bytes);
  }
  EXPECT_EQ(memory->Verify().verdict, PlacementVerdict::kVerified) << memory->Verify().ToString();
}

TEST(NumaResourceOfTheSystem, MappingsStayFewAndGoAway) {
  const int before = MappingCount();
  {
    ASSERT_OK_AND_ASSIGN(const auto memory, NumaResource::Create({.chunk = MiB(4)}));
    for (int i = 0; i < 2000; ++i) ASSERT_OK(memory->Allocate(10'000));
    EXPECT_LE(MappingCount() - before, 12) << "20 MB in 5 chunks";
  }
  EXPECT_LE(MappingCount() - before, 1);
}

TEST(NumaResourceOfTheSystem, WithForbiddenCallsItStillServesAndSaysHowItKnows) {
  const auto use = [](const std::string& source) {
    ASSERT_OK_AND_ASSIGN(const auto memory, NumaResource::Create({.nodes = {0}}));
    ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(20 * kMiB));
    const PlacementReport report = memory->Verify(block, 20 * kMiB);
    EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
    EXPECT_EQ(report.source, source);
    memory->Deallocate(block, 20 * kMiB);
  };
  const NumaCapabilities here = ProbeNuma();
  if (!here.bind.is_allowed || !here.query.is_allowed) GTEST_SKIP() << here.ToString();
  testing::ExpectInChild({SYS_mbind}, EPERM, [&] { use("move_pages"); });
  testing::ExpectInChild({SYS_move_pages}, EPERM, [&] { use("/proc/self/numa_maps"); });
  testing::ExpectInChild({SYS_mbind, SYS_move_pages, SYS_set_mempolicy, SYS_get_mempolicy}, EPERM,
                         [&] { use("/proc/self/numa_maps"); });
}

TEST(NumaResourceOfTheSystem, ReservedHugePagesWorkOrSayWhatIsMissing) {
  ASSERT_OK_AND_ASSIGN(
      const auto memory,
      NumaResource::Create(
          {.nodes = {0}, .pages = PageKind::kReservedHuge, .shortage = HugePageShortage::kFail}));
  const StatusOr<void*> block = memory->Allocate(std::size_t{1} << 40);
  EXPECT_THAT(block, StatusIs(StatusCode::kResourceExhausted, HasSubstr("reserved huge pages")));
}

TEST(NumaResourceOfTheSystem, AForkedChildMayAllocateWhileThreadsDid) {
  ASSERT_OK_AND_ASSIGN(const auto memory, NumaResource::Create({.chunk = MiB(4)}));
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) memory->Deallocate(memory->Allocate(5000).value(), 5000);
    });
  }
  for (int i = 0; i < 20; ++i) {
    testing::ExpectInChild({}, 0, [&] {
      alarm(20);  // a lock that is never released ends the child
      const StatusOr<void*> block = memory->Allocate(kMiB);
      EXPECT_OK(block);
      if (block.ok()) memory->Deallocate(*block, kMiB);
    });
  }
  stop = true;
}

}  // namespace
}  // namespace ait
