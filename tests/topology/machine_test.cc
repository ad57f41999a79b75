// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/machine.h"

#include <gtest/gtest.h>

#include <set>

#include "ait/topology/binding.h"
#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using ::ait::testing::Fixture;
using ::ait::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What holds of every machine, however odd its files are.
void ExpectConsistent(const Machine& machine) {
  ASSERT_FALSE(machine.online.empty());
  ASSERT_FALSE(machine.nodes.empty());
  ASSERT_EQ(machine.cpus.size(), static_cast<std::size_t>(machine.online.size()));
  CpuSet in_cores;
  CpuSet in_caches;
  int counted = 0;
  for (const CpuSet& core : machine.cores) {
    in_cores = in_cores | core;
    counted += core.size();
  }
  EXPECT_EQ(in_cores, machine.online);
  EXPECT_EQ(counted, machine.online.size()) << "a CPU is in two cores";
  counted = 0;
  for (const CacheGroup& group : machine.cache_groups) {
    in_caches = in_caches | group.cpus;
    counted += group.cpus.size();
  }
  EXPECT_EQ(in_caches, machine.online);
  EXPECT_EQ(counted, machine.online.size()) << "a CPU is in two caches";
  for (const Cpu& cpu : machine.cpus) {
    EXPECT_EQ(machine.FindCpu(cpu.id), &cpu);
    EXPECT_TRUE(machine.cores.at(static_cast<std::size_t>(cpu.core)).contains(cpu.id));
    EXPECT_TRUE(
        machine.cache_groups.at(static_cast<std::size_t>(cpu.cache_group)).cpus.contains(cpu.id));
    if (cpu.node) {
      ASSERT_NE(machine.FindNode(*cpu.node), nullptr);
      EXPECT_TRUE(machine.FindNode(*cpu.node)->cpus.contains(cpu.id));
    }
  }
}

TEST(Machine, ReadsTwoSocketsWithSharedCachesAndCores) {
  Fixture fixture;
  fixture.MakeTwoSockets();
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ExpectConsistent(machine);
  EXPECT_EQ(machine.online.ToString(), "0-15");
  EXPECT_EQ(machine.memory, GiB(32));
  ASSERT_EQ(machine.cores.size(), 8u);
  EXPECT_EQ(machine.cores[1].ToString(), "1,9");
  ASSERT_EQ(machine.cache_groups.size(), 4u);
  EXPECT_EQ(machine.cache_groups[3].cpus.ToString(), "6-7,14-15");
  EXPECT_EQ(machine.cache_groups[3].level, 3);
  EXPECT_EQ(machine.cache_groups[3].size, MiB(16));
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.nodes[1].cpus.ToString(), "4-7,12-15");
  EXPECT_EQ(machine.nodes[1].memory, GiB(16));
  EXPECT_THAT(machine.nodes[1].distances, ElementsAre(21, 10));
  EXPECT_EQ(machine.FindCpu(13)->node, 1);
  EXPECT_EQ(machine.FindCpu(13)->package, 1);
  EXPECT_EQ(machine.FindCpu(13)->core, 5);
  EXPECT_THAT(machine.notes, IsEmpty());
}

TEST(Machine, KeepsSparseNodeIds) {
  Fixture fixture;
  fixture.AddProc(GiB(4), "0-1");
  fixture.Write("sys/devices/system/cpu/online", "0-1");
  fixture.AddCpus("0", "0", "0", 0);
  fixture.AddCpus("1", "1", "1", 8);
  fixture.Write("sys/devices/system/node/online", "0,8,252-253");
  fixture.AddNode(0, "0", GiB(2), "10 40 80 80");
  fixture.AddNode(8, "1", GiB(2), "40 10 80 80");
  fixture.AddNode(252, "", GiB(1), "80 80 10 80");  // memory alone, as a GPU or CXL gives
  fixture.AddNode(253, "", Bytes(0), "80 80 80 10");
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ExpectConsistent(machine);
  ASSERT_EQ(machine.nodes.size(), 4u);
  EXPECT_EQ(machine.nodes[1].id, 8);
  EXPECT_EQ(machine.FindCpu(1)->node, 8);
  EXPECT_EQ(machine.FindCpu(1)->package, 8);
  EXPECT_EQ(machine.FindNode(8)->cpus, CpuSet{1});
  EXPECT_EQ(machine.FindNode(1), nullptr);
  EXPECT_TRUE(machine.FindNode(252)->cpus.empty());
  EXPECT_EQ(machine.FindNode(252)->memory, GiB(1));
  EXPECT_EQ(machine.FindNode(253)->memory, Bytes(0));
}

TEST(Machine, KeepsANodeWithoutMemory) {
  Fixture fixture;
  fixture.AddProc(GiB(4), "0-1");
  fixture.Write("sys/devices/system/cpu/online", "0-1");
  fixture.Write("sys/devices/system/node/online", "0-1");
  fixture.AddNode(0, "0", GiB(4));
  fixture.AddNode(1, "1", Bytes(0));
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ExpectConsistent(machine);
  EXPECT_EQ(machine.FindNode(1)->memory, Bytes(0));
  EXPECT_EQ(machine.FindCpu(1)->node, 1);
  EXPECT_THAT(machine.FindNode(1)->distances, IsEmpty()) << "one number for two nodes is no row";
}

TEST(Machine, LeavesOutOfflineCpus) {
  Fixture fixture;
  fixture.MakeTwoSockets();
  fixture.Write("sys/devices/system/cpu/online", "0,2-8,10-15");  // not 1 and 9: a core
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ExpectConsistent(machine);
  EXPECT_EQ(machine.cpus.size(), 14u);
  EXPECT_EQ(machine.cores.size(), 7u);
  EXPECT_EQ(machine.FindCpu(9), nullptr);
  EXPECT_EQ(machine.cache_groups[0].cpus.ToString(), "0,8");
  EXPECT_EQ(machine.nodes[0].cpus.ToString(), "0,2-3,8,10-11");
}

TEST(Machine, WithoutSysTheCpusComeFromProcAndOneNodeIsAssumed) {
  Fixture fixture;
  fixture.AddProc(GiB(2), "0-3");
  fixture.Write("proc/cpuinfo", "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 2\n");
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ExpectConsistent(machine);
  EXPECT_EQ(machine.online.ToString(), "0,2");
  ASSERT_EQ(machine.nodes.size(), 1u);
  EXPECT_EQ(machine.nodes[0].cpus.ToString(), "0,2");
  EXPECT_EQ(machine.nodes[0].memory, GiB(2));
  EXPECT_EQ(machine.cores.size(), 2u);
  ASSERT_EQ(machine.cache_groups.size(), 1u);
  EXPECT_EQ(machine.cache_groups[0].level, 0);
  EXPECT_EQ(machine.FindCpu(2)->package, std::nullopt);
  EXPECT_THAT(machine.notes, ElementsAre(HasSubstr("cpuinfo"), HasSubstr("one NUMA node assumed"),
                                         HasSubstr("one core assumed"), HasSubstr("cache")));
}

TEST(Machine, WithoutCpuinfoTheAffinityNamesTheCpus) {
  Fixture fixture;
  fixture.AddProc(GiB(2), "1,3");
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ExpectConsistent(machine);
  EXPECT_EQ(machine.online.ToString(), "1,3");
}

TEST(Machine, WithoutAnyFileTheErrorNamesThemAll) {
  Fixture fixture;
  EXPECT_THAT(ReadMachine(fixture.roots()),
              StatusIs(StatusCode::kNotFound,
                       AllOf(HasSubstr("sys/devices/system/cpu/online"), HasSubstr("proc/cpuinfo"),
                             HasSubstr("proc/self/status"))));
}

TEST(Machine, DamagedFilesAreUnknownNotWrong) {
  Fixture fixture;
  fixture.MakeTwoSockets();
  fixture.Write("proc/meminfo", "MemTotal: many kB\n");
  fixture.Write("sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal: 99999999999999999999 kB");
  fixture.Write("sys/devices/system/node/node1/distance", "21 ten");
  fixture.Write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-");
  fixture.Write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1");
  fixture.Write("sys/devices/system/cpu/cpu0/cache/index2/shared_cpu_list", "4-7");  // not with 0
  fixture.Write("sys/devices/system/cpu/cpu2/cache/index2/size", "big");
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ExpectConsistent(machine);
  EXPECT_EQ(machine.memory, Bytes(0));
  EXPECT_EQ(machine.nodes[0].memory, Bytes(0));
  EXPECT_EQ(machine.FindCpu(0)->package, std::nullopt);
  EXPECT_EQ(machine.cores[0], CpuSet{0});
}

TEST(Machine, ReadsTheMachineOfThisTest) {
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine());
  ExpectConsistent(machine);
  EXPECT_GT(machine.memory, Bytes(0));
  ASSERT_OK_AND_ASSIGN(const CpuSet mine, ThisThreadBinding());
  EXPECT_EQ(mine - machine.online, CpuSet()) << "runs on a CPU that is not online";
}

}  // namespace
}  // namespace ait
