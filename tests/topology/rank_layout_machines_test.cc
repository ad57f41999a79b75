// SPDX-License-Identifier: Apache-2.0
// Layouts on machines made of files: what the kernel writes, read and laid out in one go.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ait/topology/devices.h"
#include "ait/topology/rank_layout.h"
#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using ::ait::testing::Fixture;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileMachine : public ::testing::Test {
 protected:
  HostLayout LayOut(const RankLayoutOptions& options) {
    StatusOr<Machine> machine = ReadMachine(fixture_.roots());
    StatusOr<Budget> budget = ReadBudget(fixture_.roots());
    EXPECT_OK(machine);
    EXPECT_OK(budget);
    StatusOr<HostLayout> host = LayOutRanks(*machine, *budget, options);
    EXPECT_OK(host);
    return host.ok() ? *host : HostLayout();
  }

  static std::vector<std::string> Cpus(const HostLayout& host) {
    std::vector<std::string> lists;
    for (const RankLayout& rank : host.ranks) lists.push_back(rank.cpus.ToString());
    return lists;
  }

  static std::vector<int> MemoryNodes(const HostLayout& host) {
    std::vector<int> nodes;
    for (const RankLayout& rank : host.ranks) nodes.push_back(rank.memory_node.value_or(-1));
    return nodes;
  }

  /// Nodes `first`, `first + step`, … of `cores` single-threaded cores with one cache each.
  void MakeNodes(int nodes, int cores, int first = 0, int step = 1, int per_package = 1) {
    const int last = nodes * cores - 1;
    fixture_.AddProc(GiB(64), StrCat("0-", last), StrCat("0-", first + nodes * step));
    fixture_.Write("sys/devices/system/cpu/online", StrCat("0-", last, "\n"));
    NodeSet ids;
    for (int i = 0; i < nodes; ++i) ids.Add(first + i * step);
    fixture_.Write("sys/devices/system/node/online", ids.ToString() + "\n");
    for (int i = 0; i < nodes; ++i) {
      const std::string list = StrCat(i * cores, "-", (i + 1) * cores - 1);
      std::string distances;
      for (int j = 0; j < nodes; ++j) {
        const bool same_package = i / per_package == j / per_package;
        distances += StrCat(i == j ? 10 : same_package ? 12 : 21, " ");
      }
      fixture_.AddNode(ids[i], list, GiB(8), distances);
      for (int core = i * cores; core < (i + 1) * cores; ++core) {
        fixture_.AddCpus(StrCat(core), StrCat(core), list, i / per_package);
      }
    }
  }

  void AddGpu(const std::string& address, int node) {
    const std::string device = "sys/bus/pci/devices/" + address;
    fixture_.Write(device + "/class", "0x030200");
    fixture_.Write(device + "/vendor", "0x10de");
    fixture_.Write(device + "/numa_node", StrCat(node));
  }

  std::vector<std::optional<int>> GpuNodes() {
    std::vector<std::optional<int>> nodes;
    for (const GpuPlace& gpu : ReadDevices(fixture_.roots()).gpus) nodes.push_back(gpu.node);
    return nodes;
  }

  Fixture fixture_;
};

TEST_F(FileMachine, OneNode) {
  MakeNodes(1, 4);
  AddGpu("0000:01:00.0", -1);
  for (const LayoutPolicy policy :
       {LayoutPolicy::kCompact, LayoutPolicy::kScatter, LayoutPolicy::kGpu}) {
    const HostLayout host = LayOut({.ranks = 2, .policy = policy, .gpu_nodes = GpuNodes()});
    EXPECT_THAT(Cpus(host), ElementsAre("0-1", "2-3"));
    EXPECT_THAT(MemoryNodes(host), ElementsAre(0, 0));
  }
}

TEST_F(FileMachine, TwoSocketsOfTwoCachesWithThreads) {
  fixture_.MakeTwoSockets();
  AddGpu("0000:81:00.0", 1);
  AddGpu("0000:0a:00.0", 0);
  HostLayout host = LayOut({.ranks = 4});
  EXPECT_THAT(Cpus(host), ElementsAre("0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"));
  EXPECT_EQ(host.ranks[0].compute.ToString(), "0-1");
  EXPECT_EQ(host.ranks[0].communication.ToString(), "9");
  EXPECT_EQ(host.ranks[0].loaders.ToString(), "8");
  EXPECT_THAT(MemoryNodes(host), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(host.notes, IsEmpty());
  host = LayOut({.ranks = 4, .policy = LayoutPolicy::kScatter});
  EXPECT_THAT(Cpus(host), ElementsAre("0-1,8-9", "4-5,12-13", "2-3,10-11", "6-7,14-15"));
  host = LayOut({.ranks = 2, .policy = LayoutPolicy::kGpu, .gpu_nodes = GpuNodes()});
  EXPECT_THAT(Cpus(host), ElementsAre("0-3,8-11", "4-7,12-15")) << "GPUs in order of the bus";
  EXPECT_THAT(MemoryNodes(host), ElementsAre(0, 1));
}

TEST_F(FileMachine, EightNodes) {
  MakeNodes(8, 6);
  EXPECT_THAT(Cpus(LayOut({.ranks = 8})),
              ElementsAre("0-5", "6-11", "12-17", "18-23", "24-29", "30-35", "36-41", "42-47"));
  EXPECT_THAT(MemoryNodes(LayOut({.ranks = 4, .policy = LayoutPolicy::kScatter, .cores = 6})),
              ElementsAre(0, 1, 2, 3));
  const HostLayout sixteen = LayOut({.ranks = 16, .policy = LayoutPolicy::kScatter});
  EXPECT_THAT(MemoryNodes(sixteen), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(FileMachine, SparseNodeIds) {
  MakeNodes(3, 2, 0, 8);  // nodes 0, 8 and 16, as on POWER
  AddGpu("0000:01:00.0", 16);
  EXPECT_THAT(MemoryNodes(LayOut({.ranks = 3})), ElementsAre(0, 8, 16));
  const HostLayout host =
      LayOut({.ranks = 1, .policy = LayoutPolicy::kGpu, .gpu_nodes = GpuNodes()});
  EXPECT_THAT(Cpus(host), ElementsAre("4-5"));
  EXPECT_THAT(MemoryNodes(host), ElementsAre(16));
}

TEST_F(FileMachine, NodesWithoutCpusAndWithoutMemory) {
  MakeNodes(2, 2);
  fixture_.Write("sys/devices/system/node/online", "0-3\n");
  fixture_.AddNode(0, "0-1", GiB(8), "10 21 14 30");
  fixture_.AddNode(1, "2-3", Bytes(0), "21 10 30 14");  // CPUs alone
  fixture_.AddNode(2, "", GiB(128), "14 30 10 40");     // CXL beside node 0
  fixture_.AddNode(3, "", GiB(96), "30 14 40 10");      // CXL beside node 1
  AddGpu("0000:01:00.0", 3);
  const HostLayout host = LayOut({.ranks = 2});
  EXPECT_THAT(Cpus(host), ElementsAre("0-1", "2-3"));
  EXPECT_THAT(MemoryNodes(host), ElementsAre(0, 0))
      << "ordinary memory of another node, not the CXL next door";
  const HostLayout by_gpu =
      LayOut({.ranks = 1, .policy = LayoutPolicy::kGpu, .gpu_nodes = GpuNodes()});
  EXPECT_THAT(Cpus(by_gpu), ElementsAre("2-3"));
  EXPECT_THAT(by_gpu.notes, Contains(HasSubstr("the nearest is on node 1")));
}

TEST_F(FileMachine, SeveralNodesInAPackage) {
  MakeNodes(4, 4, 0, 1, /*per_package=*/2);  // sub-NUMA clustering: two nodes a socket
  EXPECT_THAT(Cpus(LayOut({.ranks = 4})), ElementsAre("0-3", "4-7", "8-11", "12-15"));
  const HostLayout two = LayOut({.ranks = 2});
  EXPECT_THAT(Cpus(two), ElementsAre("0-7", "8-15")) << "a socket each";
  EXPECT_EQ(two.ranks[0].nodes.ToString(), "0-1");
  EXPECT_EQ(two.ranks[0].memory_node, std::nullopt);
  EXPECT_THAT(two.notes, Contains(HasSubstr("rank 0 has cores of nodes 0-1")));
}

TEST_F(FileMachine, OneCacheOverTheNodesOfAPackage) {
  MakeNodes(2, 2, 0, 1, /*per_package=*/2);
  for (int core = 0; core < 4; ++core) {
    fixture_.AddCpus(StrCat(core), StrCat(core), "0-3", 0);  // the L3 spans both nodes
  }
  EXPECT_THAT(Cpus(LayOut({.ranks = 2})), ElementsAre("0-1", "2-3"));
  EXPECT_THAT(MemoryNodes(LayOut({.ranks = 2})), ElementsAre(0, 1));
}

TEST_F(FileMachine, OfflineCpus) {
  fixture_.MakeTwoSockets();
  fixture_.Write("sys/devices/system/cpu/online", "0,2-8,10-15\n");  // CPUs 1 and 9 are off
  const HostLayout host = LayOut({.ranks = 2});
  EXPECT_THAT(Cpus(host), ElementsAre("0,2-3,8,10-11", "4-7,12-15"));
  EXPECT_EQ(host.ranks[0].threads, 3);
  EXPECT_EQ(host.ranks[1].threads, 3) << "all wait for the slowest";
  fixture_.Write("sys/devices/system/cpu/online", "0-7\n");  // second threads are off
  EXPECT_THAT(LayOut({.ranks = 1}).ranks[0].loaders.ToString(), "0-7");
}

TEST_F(FileMachine, CpusetsOfCgroupVersion2) {
  fixture_.MakeTwoSockets();
  fixture_.Write("proc/self/cgroup", "0::/job\n");
  fixture_.Write("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  fixture_.Write("sys/fs/cgroup/job/cpuset.cpus.effective", "2-5,10-13\n");
  fixture_.Write("sys/fs/cgroup/job/cpu.max", "400000 100000\n");
  const HostLayout host = LayOut({.ranks = 2});
  EXPECT_THAT(Cpus(host), ElementsAre("2-3,10-11", "4-5,12-13"));
  EXPECT_EQ(host.ranks[0].threads, 2);
  EXPECT_EQ(host.ranks[0].loader_threads, 1) << "the quota of 4 CPUs is used up";
  EXPECT_THAT(MemoryNodes(host), ElementsAre(0, 1));
}

TEST_F(FileMachine, CpusetsOfCgroupVersion1) {
  fixture_.MakeTwoSockets();
  fixture_.AddProc(GiB(32), "0-15", "1");  // memory of node 1 alone
  fixture_.Write("proc/self/cgroup", "4:cpuset:/job\n3:cpu,cpuacct:/job\n");
  fixture_.Write("proc/self/mountinfo",
                 "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                 "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  fixture_.Write("sys/fs/cgroup/cpuset/job/cpuset.cpus", "0-1,8\n");
  fixture_.Write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  fixture_.Write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  const HostLayout host = LayOut({.ranks = 2});
  EXPECT_THAT(Cpus(host), ElementsAre("0,8", "1"));
  EXPECT_EQ(host.ranks[0].threads, 1);
  EXPECT_THAT(MemoryNodes(host), ElementsAre(1, 1)) << "the only one that is allowed";
}

}  // namespace
}  // namespace ait
