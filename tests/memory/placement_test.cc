// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/placement.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

#include "ait/memory/numa.h"
#include "memory/fake_numa_machine.h"
#include "memory/mapping_internal.h"
#include "memory/numa_ops_internal.h"
#include "support/forbidden_calls.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::AllOf;
using testing::FakeNumaMachine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Fresh private memory of this process, in small pages.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<char*>(internal::MapAligned(bytes, kMiB, -1))) {
    madvise(data_, bytes_, MADV_NOHUGEPAGE);
  }
  ~Memory() { internal::Unmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }

 private:
  const std::size_t bytes_;
  char* const data_;
};

FakeNumaMachine TwoNodes() {
  return FakeNumaMachine({{.id = 0, .cpus = "0", .memory = GiB(1), .distance = "10 20"},
                          {.id = 1, .cpus = "1", .memory = GiB(1), .distance = "20 10"}});
}

/// Puts the pages of [data + from, data + to) on `node`.
void PutOn(FakeNumaMachine& machine, const Memory& memory, std::size_t from, std::size_t to,
           int node) {
  machine.Bind(memory.data() + from, to - from, MPOL_BIND, {node});
  machine.Populate(memory.data() + from, to - from);
}

TEST(Placement, IsVerifiedWhenEveryPageLiesThere) {
  FakeNumaMachine machine = TwoNodes();
  const Memory memory(kMiB);
  PutOn(machine, memory, 0, kMiB, 1);
  const auto report =
      internal::VerifyPlacement(machine, memory.data() + 100, 5000, {.nodes = {1}}, {});
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified);
  EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{1, Bytes(5000)}}));
  EXPECT_EQ(report.ToString(), "verified: 5000 bytes on node 1 (by move_pages)");
}

TEST(Placement, IsWrongWhenAPageLiesElsewhere) {
  FakeNumaMachine machine = TwoNodes();
  const Memory memory(kMiB);
  PutOn(machine, memory, 0, 8192, 1);
  PutOn(machine, memory, 8192, kMiB, 0);
  const auto report = internal::VerifyPlacement(machine, memory.data(), 16'384, {.nodes = {1}}, {});
  EXPECT_EQ(report.verdict, PlacementVerdict::kWrong);
  EXPECT_EQ(report.ToString(),
            "wrong: 8192 bytes on node 0, 8192 bytes on node 1 (by move_pages): 8192 bytes lie on "
            "node 0, not on node 1");
}

TEST(Placement, PagesThatDoNotExistAreNotCounted) {
  FakeNumaMachine machine = TwoNodes();
  const Memory memory(kMiB);
  auto report = internal::VerifyPlacement(machine, memory.data(), 8192, {.nodes = {1}}, {});
  EXPECT_EQ(report.verdict, PlacementVerdict::kUnverified);
  EXPECT_EQ(report.untouched, Bytes(8192));
  EXPECT_THAT(report.reason, HasSubstr("no page has been touched"));
  PutOn(machine, memory, 0, 4096, 1);
  report = internal::VerifyPlacement(machine, memory.data(), 8192, {.nodes = {1}}, {});
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified);
  EXPECT_EQ(report.untouched, Bytes(4096));
}

TEST(Placement, SharesAreHeldToWeights) {
  FakeNumaMachine machine = TwoNodes();
  const Memory memory(256 * kMiB);
  const PlacementExpectation expected = {.nodes = {0, 1}, .weights = {3, 1}};
  PutOn(machine, memory, 0, 192 * kMiB, 0);
  PutOn(machine, memory, 192 * kMiB, 256 * kMiB, 1);
  EXPECT_EQ(internal::VerifyPlacement(machine, memory.data(), 256 * kMiB, expected, {}).verdict,
            PlacementVerdict::kVerified);
  // 6.2 MiB too many on node 1 are within 2 % and a huge page; 10 are not.
  EXPECT_EQ(internal::VerifyPlacement(machine, memory.data() + 26 * kMiB, 230 * kMiB, expected, {})
                .verdict,
            PlacementVerdict::kVerified);
  const auto report =
      internal::VerifyPlacement(machine, memory.data() + 46 * kMiB, 210 * kMiB, expected, {});
  EXPECT_EQ(report.verdict, PlacementVerdict::kWrong);
  EXPECT_THAT(report.reason, HasSubstr("node 0, its share is"));
}

TEST(Placement, NothingExpectedIsNeverWrong) {
  FakeNumaMachine machine = TwoNodes();
  const Memory memory(kMiB);
  PutOn(machine, memory, 0, kMiB, 1);
  const auto report = internal::VerifyPlacement(machine, memory.data(), kMiB, {}, {});
  EXPECT_EQ(report.verdict, PlacementVerdict::kUnverified);
  EXPECT_EQ(report.by_node.at(1), MiB(1));
}

/// numa_maps and maps that say of `memory` what the lines say.
void WriteMaps(FakeNumaMachine& machine, const Memory& memory, std::size_t bytes,
               std::string_view counts) {
  const auto hex = [](const char* address) {
    char text[32];
    std::snprintf(text, sizeof(text), "%lx", reinterpret_cast<unsigned long>(address));
    return std::string(text);
  };
  machine.fixture().Write("proc/self/maps",
                          StrCat("1000-2000 r--p 0 00:00 0\n", hex(memory.data()), "-",
                                 hex(memory.data() + bytes), " rw-p 00000000 00:00 0\n"));
  machine.fixture().Write("proc/self/numa_maps",
                          StrCat("00001000 default file=/bin/x mapped=1 N0=1 kernelpagesize_kB=4\n",
                                 hex(memory.data()), " bind:1 anon=9 dirty=9 ", counts, "\n"));
}

TEST(Placement, IsReadFromNumaMapsWhereMovePagesIsForbidden) {
  FakeNumaMachine machine = TwoNodes();
  machine.forbidden_query = EPERM;
  const Memory memory(kMiB);
  WriteMaps(machine, memory, kMiB, "N1=256 kernelpagesize_kB=4");
  const auto verify = [&](std::size_t from, std::size_t bytes) {
    return internal::VerifyPlacement(machine, memory.data() + from, bytes, {.nodes = {1}},
                                     machine.roots());
  };
  const auto whole = verify(0, kMiB);
  EXPECT_EQ(whole.verdict, PlacementVerdict::kVerified) << whole.ToString();
  EXPECT_EQ(whole.by_node.at(1), MiB(1));
  EXPECT_EQ(whole.source, machine.roots().proc + "/self/numa_maps");
  EXPECT_EQ(verify(4096, 8192).by_node, (std::map<int, Bytes>{{1, Bytes(8192)}}));

  WriteMaps(machine, memory, kMiB, "N0=100 N1=100 kernelpagesize_kB=4");
  const auto mixed = verify(0, kMiB);
  EXPECT_EQ(mixed.verdict, PlacementVerdict::kWrong) << mixed.ToString();
  EXPECT_EQ(mixed.by_node.at(0), KiB(400));
  EXPECT_EQ(mixed.untouched, KiB(224));
  const auto part = verify(0, 8192);
  EXPECT_EQ(part.verdict, PlacementVerdict::kUnverified);
  EXPECT_THAT(part.reason, HasSubstr("the node of 8192 bytes could not be told"));

  WriteMaps(machine, memory, kMiB, "kernelpagesize_kB=4");
  EXPECT_EQ(verify(0, kMiB).untouched, MiB(1));
}

TEST(Placement, HugePagesOfNumaMapsCountByTheirSize) {
  FakeNumaMachine machine = TwoNodes();
  machine.forbidden_query = ENOSYS;
  const Memory memory(4 * kMiB);
  WriteMaps(machine, memory, 4 * kMiB, "N1=2 kernelpagesize_kB=2048");
  const auto report =
      internal::VerifyPlacement(machine, memory.data(), 4 * kMiB, {.nodes = {1}}, machine.roots());
  EXPECT_EQ(report.by_node, (std::map<int, Bytes>{{1, MiB(4)}}));
}

TEST(Placement, PagesThatNumaBalancingHidesAreFoundInNumaMaps) {
  FakeNumaMachine machine = TwoNodes();
  const Memory memory(kMiB);
  PutOn(machine, memory, 0, kMiB / 2, 1);
  WriteMaps(machine, memory, kMiB, "N1=256 kernelpagesize_kB=4");
  const auto report =
      internal::VerifyPlacement(machine, memory.data(), kMiB, {.nodes = {1}}, machine.roots());
  EXPECT_EQ(report.by_node.at(1), MiB(1));
  EXPECT_THAT(report.source, AllOf(HasSubstr("move_pages"), HasSubstr("numa_maps")));
}

TEST(Placement, SaysWhyNothingCanBeRead) {
  FakeNumaMachine machine = TwoNodes();
  machine.forbidden_query = EPERM;
  const Memory memory(kMiB);
  const auto report = internal::VerifyPlacement(machine, memory.data(), kMiB, {.nodes = {1}},
                                                {.proc = "/nonexistent"});
  EXPECT_EQ(report.verdict, PlacementVerdict::kUnverified);
  EXPECT_EQ(report.unknown, MiB(1));
  EXPECT_THAT(report.reason, AllOf(HasSubstr("move_pages: Operation not permitted"),
                                   HasSubstr("CAP_SYS_NICE"), HasSubstr("/nonexistent/self/")));
}

TEST(NumaCapabilities, EachCallIsTriedAlone) {
  for (int error : {EPERM, ENOSYS}) {
    FakeNumaMachine machine = TwoNodes();
    machine.forbidden_bind = error;
    NumaCapabilities found = internal::ProbeNuma(machine);
    EXPECT_FALSE(found.bind.is_allowed);
    EXPECT_THAT(found.bind.reason, StartsWith("mbind: "));
    EXPECT_TRUE(found.move.is_allowed && found.query.is_allowed && found.thread_policy.is_allowed);
    machine.forbidden_bind = 0;
    machine.forbidden_query = error;
    found = internal::ProbeNuma(machine);
    EXPECT_FALSE(found.query.is_allowed);
    EXPECT_TRUE(found.bind.is_allowed && found.move.is_allowed);
    machine.forbidden_policy = error;
    EXPECT_THAT(internal::ProbeNuma(machine).ToString(),
                AllOf(HasSubstr("bind: allowed; move: allowed; query: forbidden (move_pages: "),
                      HasSubstr("thread policy: forbidden (get_mempolicy: ")));
  }
}

// From here on the system itself, which has a node 0 at least.

TEST(PlacementOfTheSystem, OrdinaryMemoryLiesOnANode) {
  const NumaCapabilities capabilities = ProbeNuma();
  const Memory memory(kMiB);
  std::memset(memory.data(), 1, kMiB / 2);
  const auto report = VerifyPlacement(memory.data(), kMiB, {.nodes = IdSet::Range(0, 1023)});
  EXPECT_EQ(report.verdict, PlacementVerdict::kVerified) << report.ToString();
  EXPECT_EQ(report.untouched, KiB(512)) << report.ToString();
  if (capabilities.query.is_allowed) {
    EXPECT_EQ(report.source, "move_pages");
  }
}

TEST(PlacementOfTheSystem, ReadingAPageDoesNotPlaceIt) {
  if (!ProbeNuma().query.is_allowed) GTEST_SKIP() << ProbeNuma().query.reason;
  const Memory memory(kMiB);
  volatile char* const bytes = memory.data();
  for (std::size_t at = 0; at < kMiB; at += 4096) (void)bytes[at];
  EXPECT_EQ(VerifyPlacement(memory.data(), kMiB, {.nodes = {0}}).untouched, MiB(1));
}

TEST(PlacementOfTheSystem, ForbiddenCallsAreFoundAndNamed) {
  const auto expect = [](const std::vector<long>& calls, int error, bool bind, bool query,
                         bool policy) {
    testing::ExpectInChild(calls, error, [=] {
      const NumaCapabilities found = ProbeNuma();
      EXPECT_EQ(found.bind.is_allowed, bind) << found.ToString();
      EXPECT_EQ(found.query.is_allowed, query) << found.ToString();
      EXPECT_EQ(found.move.is_allowed, query) << found.ToString();
      EXPECT_EQ(found.thread_policy.is_allowed, policy) << found.ToString();
    });
  };
  const NumaCapabilities here = ProbeNuma();
  if (!here.bind.is_allowed || !here.query.is_allowed) GTEST_SKIP() << here.ToString();
  expect({}, 0, true, true, true);
  for (int error : {EPERM, ENOSYS}) {
    expect({SYS_mbind}, error, false, true, true);
    expect({SYS_move_pages}, error, true, false, true);
    expect({SYS_set_mempolicy}, error, true, true, false);
    expect({SYS_get_mempolicy}, error, true, true, false);
    expect({SYS_mbind, SYS_move_pages, SYS_set_mempolicy, SYS_get_mempolicy}, error, false, false,
           false);
  }
}

TEST(PlacementOfTheSystem, TheProbeChangesNoPolicy) {
  int before = -1, after = -1;
  ASSERT_EQ(syscall(SYS_get_mempolicy, &before, nullptr, 0UL, nullptr, 0UL), 0);
  ProbeNuma();
  ASSERT_EQ(syscall(SYS_get_mempolicy, &after, nullptr, 0UL, nullptr, 0UL), 0);
  EXPECT_EQ(after, before);
}

TEST(PlacementOfTheSystem, UntouchedPagesOfATouchedMappingAreNotTakenForPlaced) {
  const auto check = [](const std::string& source) {
    const Memory memory(4 * kMiB);
    std::memset(memory.data(), 1, kMiB);
    volatile char* const bytes = memory.data();
    for (std::size_t at = 3 * kMiB; at < 4 * kMiB; at += 4096) (void)bytes[at];  // page of zeros
    const auto touched = VerifyPlacement(memory.data(), kMiB, {.nodes = IdSet::Range(0, 1023)});
    EXPECT_EQ(touched.verdict, PlacementVerdict::kVerified) << touched.ToString();
    EXPECT_EQ(touched.source, source);
    const auto fresh = VerifyPlacement(memory.data() + kMiB, kMiB, {.nodes = {0}});
    EXPECT_EQ(fresh.verdict, PlacementVerdict::kUnverified) << fresh.ToString();
    EXPECT_EQ(fresh.untouched, MiB(1)) << fresh.ToString();
    const auto read = VerifyPlacement(memory.data() + 3 * kMiB, kMiB, {.nodes = {0}});
    EXPECT_EQ(read.verdict, PlacementVerdict::kUnverified) << read.ToString();
    EXPECT_THAT(read.by_node, IsEmpty());
  };
  if (!ProbeNuma().query.is_allowed) GTEST_SKIP() << ProbeNuma().query.reason;
  check("move_pages");
  testing::ExpectInChild({SYS_move_pages}, EPERM, [&] { check("/proc/self/numa_maps"); });
}

TEST(PlacementOfTheSystem, AnUntouchedBlockBesideATouchedOneIsNotVerified) {
  ASSERT_OK_AND_ASSIGN(const auto memory,
                       NumaResource::Create({.first_touch = FirstTouch::kByUser}));
  ASSERT_OK_AND_ASSIGN(void* const a, memory->Allocate(kMiB));
  ASSERT_OK_AND_ASSIGN(void* const gap, memory->Allocate(2 * kMiB));  // keeps huge pages apart
  ASSERT_OK_AND_ASSIGN(void* const b, memory->Allocate(kMiB));
  std::memset(a, 1, kMiB);
  EXPECT_EQ(memory->Verify(a, kMiB).verdict, PlacementVerdict::kVerified);
  const auto report = memory->Verify(b, kMiB);
  EXPECT_EQ(report.verdict, PlacementVerdict::kUnverified) << report.ToString();
  EXPECT_EQ(report.untouched, MiB(1)) << report.ToString();
  memory->Deallocate(a, kMiB);
  memory->Deallocate(gap, 2 * kMiB);
  memory->Deallocate(b, kMiB);
}

TEST(PlacementOfTheSystem, NumaMapsAgreesWithMovePages) {
  const Memory memory(4 * kMiB);
  std::memset(memory.data(), 1, 4 * kMiB);
  const auto by_pages = VerifyPlacement(memory.data(), 4 * kMiB, {.nodes = {0}});
  testing::ExpectInChild({SYS_move_pages}, EPERM, [&] {
    const Memory fresh(4 * kMiB);
    std::memset(fresh.data(), 1, 4 * kMiB);
    const auto by_maps = VerifyPlacement(fresh.data(), 4 * kMiB, {.nodes = {0}});
    EXPECT_EQ(by_maps.source, "/proc/self/numa_maps");
    EXPECT_EQ(by_maps.verdict, by_pages.verdict) << by_maps.ToString();
  });
}

}  // namespace
}  // namespace ait
