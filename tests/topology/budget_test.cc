// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/budget.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "ait/topology/binding.h"
#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using ::ait::testing::Fixture;
using ::ait::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kMountV2[] =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kMountsV1[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

/// A machine with CPUs 0-7, all allowed, in no cgroup.
class BudgetTest : public ::testing::Test {
 protected:
  BudgetTest() { fixture_.AddProc(GiB(16), "0-7", "0-1"); }

  Budget Read() {
    StatusOr<Budget> budget = ReadBudget(fixture_.roots());
    EXPECT_OK(budget);
    return budget.ok() ? *budget : Budget();
  }

  void EnterCgroupV2(const std::string& path) {
    fixture_.Write("proc/self/cgroup", StrCat("0::", path, "\n"));
    fixture_.Write("proc/self/mountinfo", kMountV2);
    fixture_.Write(StrCat("sys/fs/cgroup", path, "/cgroup.procs"), "1\n");
  }

  Fixture fixture_;
};

TEST_F(BudgetTest, WithoutCgroupsOnlyTheAffinityLimits) {
  const Budget budget = Read();
  EXPECT_EQ(budget.affinity.value.ToString(), "0-7");
  EXPECT_THAT(budget.affinity.source, EndsWith("proc/self/status"));
  EXPECT_EQ(budget.cpuset, std::nullopt);
  EXPECT_EQ(budget.cpu_quota, std::nullopt);
  EXPECT_EQ(budget.memory_limit, std::nullopt);
  EXPECT_EQ(budget.memory_nodes->value.ToString(), "0-1");
  EXPECT_EQ(budget.memory_available->value, GiB(8));
  EXPECT_THAT(budget.memory_available->source, EndsWith("meminfo"));
  EXPECT_EQ(budget.cpu_count(), 8);
}

TEST_F(BudgetTest, WithoutProcTheErrorNamesTheFile) {
  fixture_.Remove("proc");
  EXPECT_THAT(ReadBudget(fixture_.roots()),
              StatusIs(StatusCode::kNotFound, HasSubstr("proc/self/status")));
}

TEST_F(BudgetTest, V2QuotaIsTheLeastOfAllLevels) {
  EnterCgroupV2("/a/b");
  fixture_.Write("sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
  fixture_.Write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  Budget budget = Read();
  EXPECT_EQ(budget.cpu_quota->value, 2.5);
  EXPECT_THAT(budget.cpu_quota->source, EndsWith("/sys/fs/cgroup/a/cpu.max"));
  EXPECT_EQ(budget.cpu_count(), 3) << "rounded up";

  fixture_.Write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  budget = Read();
  EXPECT_EQ(budget.cpu_quota->value, 6.0);
  EXPECT_EQ(budget.cpu_count(), 6);

  fixture_.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(Read().cpu_quota, std::nullopt);

  fixture_.Write("sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
  EXPECT_EQ(Read().cpu_count(), 1) << "never none";
}

TEST_F(BudgetTest, V2CpusetNarrowsTheAffinity) {
  EnterCgroupV2("/a/b");
  fixture_.Write("sys/fs/cgroup/a/b/cpuset.cpus.effective", "2-3\n");
  fixture_.Write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-3\n");
  Budget budget = Read();
  EXPECT_EQ(budget.cpuset->value.ToString(), "2-3");
  EXPECT_THAT(budget.cpuset->source, EndsWith("a/b/cpuset.cpus.effective"));
  EXPECT_EQ(budget.usable_cpus().ToString(), "2-3");
  EXPECT_EQ(budget.cpu_count(), 2);

  fixture_.Remove("sys/fs/cgroup/a/b/cpuset.cpus.effective");  // controller not enabled there
  budget = Read();
  EXPECT_EQ(budget.cpuset->value.ToString(), "0-3");
  EXPECT_EQ(budget.cpu_count(), 4);

  fixture_.AddProc(GiB(16), "3-7");
  EXPECT_EQ(Read().usable_cpus().ToString(), "3");
}

TEST_F(BudgetTest, SwapIsTheLeastOfTheMachineAndTheCgroups) {
  EXPECT_EQ(Read().swap_available, std::nullopt) << "/proc/meminfo tells nothing of it";
  fixture_.Write("proc/meminfo", "MemTotal: 16777216 kB\nSwapTotal: 8192 kB\nSwapFree: 4096 kB\n");
  EXPECT_EQ(Read().swap_available->value, MiB(4));
  EnterCgroupV2("/a/b");
  fixture_.Write("sys/fs/cgroup/a/b/memory.swap.max", "max\n");
  fixture_.Write("sys/fs/cgroup/a/memory.swap.max", "2097152\n");
  fixture_.Write("sys/fs/cgroup/a/memory.swap.current", "1048576\n");
  const Budget budget = Read();
  EXPECT_EQ(budget.swap_available->value, MiB(1));
  EXPECT_THAT(budget.swap_available->source, EndsWith("/sys/fs/cgroup/a/memory.swap.max"));
  fixture_.Write("sys/fs/cgroup/a/memory.swap.current", "9097152\n");
  EXPECT_EQ(Read().swap_available->value, Bytes(0));
}

TEST_F(BudgetTest, V2MemoryIsTheLeastLimitAndTheLeastRoom) {
  EnterCgroupV2("/a/b");
  fixture_.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  fixture_.Write("sys/fs/cgroup/a/memory.max", StrCat(GiB(4).value(), "\n"));
  fixture_.Write("sys/fs/cgroup/a/memory.current", StrCat(GiB(3).value(), "\n"));
  fixture_.Write("sys/fs/cgroup/a/memory.stat",
                 StrCat("anon 5\nactive_file 7\ninactive_file ", GiB(1).value(), "\n"));
  Budget budget = Read();
  EXPECT_EQ(budget.memory_limit->value, GiB(4));
  EXPECT_THAT(budget.memory_limit->source, EndsWith("/a/memory.max"));
  EXPECT_EQ(budget.memory_available->value, GiB(2)) << "4 - (3 - 1 of droppable cache)";
  EXPECT_THAT(budget.memory_available->source, EndsWith("/a/memory.max"));

  fixture_.Write("sys/fs/cgroup/a/b/memory.max", StrCat(GiB(1).value(), "\n"));
  fixture_.Write("sys/fs/cgroup/a/b/memory.current", StrCat(GiB(2).value(), "\n"));
  budget = Read();
  EXPECT_EQ(budget.memory_limit->value, GiB(1));
  EXPECT_EQ(budget.memory_available->value, Bytes(0)) << "over its limit, not below zero";
}

TEST_F(BudgetTest, V2InAContainerSeesItsOwnTop) {
  // A cgroup namespace: the path is "/" and the mount shows the container's cgroup.
  EnterCgroupV2("/");
  fixture_.Write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  fixture_.Write("sys/fs/cgroup/memory.max", "1073741824\n");
  Budget budget = Read();
  EXPECT_EQ(budget.cpu_count(), 2);
  EXPECT_EQ(budget.memory_limit->value, GiB(1));

  // A path outside of the namespace: the top is all that can be seen.
  fixture_.Write("proc/self/cgroup", "0::/../../system.slice\n");
  EXPECT_EQ(Read().cpu_count(), 2);
}

TEST_F(BudgetTest, V1EachControllerHasItsOwnPlace) {
  fixture_.Write("proc/self/cgroup",
                 "9:name=systemd:/x\n4:memory:/m/n\n3:cpuset:/s\n1:cpuacct,cpu:/c/d\n0::/\n");
  fixture_.Write("proc/self/mountinfo", kMountsV1);
  fixture_.Write("sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_quota_us", "-1\n");
  fixture_.Write("sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_period_us", "100000\n");
  fixture_.Write("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "350000\n");
  fixture_.Write("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
  fixture_.Write("sys/fs/cgroup/cpuset/s/cpuset.cpus", "0-5\n");
  fixture_.Write("sys/fs/cgroup/memory/m/n/memory.limit_in_bytes", "9223372036854771712\n");
  fixture_.Write("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "2147483648\n");
  fixture_.Write("sys/fs/cgroup/memory/m/memory.usage_in_bytes", "1610612736\n");
  fixture_.Write("sys/fs/cgroup/memory/m/memory.stat", "cache 9\ntotal_inactive_file 536870912\n");
  const Budget budget = Read();
  EXPECT_EQ(budget.cpu_quota->value, 3.5);
  EXPECT_THAT(budget.cpu_quota->source, EndsWith("cpu,cpuacct/c/cpu.cfs_quota_us"));
  EXPECT_EQ(budget.cpuset->value.ToString(), "0-5");
  EXPECT_EQ(budget.cpu_count(), 4);
  EXPECT_EQ(budget.memory_limit->value, GiB(2));
  EXPECT_EQ(budget.memory_available->value, GiB(1));
}

TEST_F(BudgetTest, V1InAContainerWhoseMountShowsOnlyItsCgroup) {
  fixture_.Write("proc/self/cgroup", "1:cpu:/docker/abc\n4:memory:/docker/abc\n");
  fixture_.Write(
      "proc/self/mountinfo",
      "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "35 31 0:32 /docker/abc /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory\n");
  fixture_.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  fixture_.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  // The limit is set on a parent that the container cannot see.
  fixture_.Write("sys/fs/cgroup/my memory/memory.limit_in_bytes", "9223372036854771712\n");
  fixture_.Write("sys/fs/cgroup/my memory/memory.stat", "hierarchical_memory_limit 1073741824\n");
  const Budget budget = Read();
  EXPECT_EQ(budget.cpu_count(), 2);
  EXPECT_EQ(budget.memory_limit->value, GiB(1));
  EXPECT_THAT(budget.memory_limit->source, EndsWith("my memory/memory.stat"));
}

TEST_F(BudgetTest, ReadsTheResourceLimits) {
  fixture_.Write(
      "proc/self/limits",
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max file size             4096                 unlimited            bytes     \n"
      "Max open files            20000                20000                files     \n"
      "Max locked memory         8388608              8388608              bytes     \n"
      "Max address space         unlimited            unlimited            bytes     \n");
  const ResourceLimits limits = Read().limits;
  EXPECT_EQ(limits.file_size, Bytes(4096));
  EXPECT_EQ(limits.open_files, 20000);
  EXPECT_EQ(limits.locked_memory, MiB(8));
  EXPECT_EQ(limits.address_space, std::nullopt);
}

TEST_F(BudgetTest, DamagedFilesDoNotLimit) {
  EnterCgroupV2("/a");
  fixture_.Write("sys/fs/cgroup/a/cpu.max", "fast 0 1 2\n");
  fixture_.Write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-\n");
  fixture_.Write("sys/fs/cgroup/a/memory.max", "-5\n");
  fixture_.Write("proc/self/limits", "Max open files");
  const Budget budget = Read();
  EXPECT_EQ(budget.cpu_count(), 8);
  EXPECT_EQ(budget.memory_limit, std::nullopt);
  EXPECT_EQ(budget.limits.open_files, std::nullopt);

  fixture_.Write("proc/self/mountinfo", "garbage\n - \n1 2 3 - cgroup2\n");
  fixture_.Write("proc/self/cgroup", "nothing here\n:\n");
  EXPECT_EQ(Read().cpu_count(), 8);
}

TEST_F(BudgetTest, ACgroupWithoutASlashIsNoCgroup) {
  EnterCgroupV2("/");
  fixture_.Write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  for (const char* line : {"0::foo\n", "0::\n", "0::foo/..\n", "0::foo/bar\n"}) {
    fixture_.Write("proc/self/cgroup", line);
    EXPECT_EQ(Read().cpu_quota, std::nullopt) << line;
  }
  fixture_.Write("proc/self/cgroup", "0::foo\n0::/\n");
  EXPECT_EQ(Read().cpu_count(), 2);
}

TEST(Budget, OfThisProcessAgreesWithTheSystemCalls) {
  ASSERT_OK_AND_ASSIGN(const Budget budget, ReadBudget());
  ASSERT_OK_AND_ASSIGN(const CpuSet mine, ThisThreadBinding());
  EXPECT_EQ(budget.affinity.value, mine);
  rlimit open_files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &open_files), 0);
  if (open_files.rlim_cur != RLIM_INFINITY) {
    EXPECT_EQ(budget.limits.open_files, static_cast<std::int64_t>(open_files.rlim_cur));
  }
  ASSERT_TRUE(budget.memory_available.has_value());
  EXPECT_GT(budget.memory_available->value, MiB(1));
  EXPECT_GE(budget.cpu_count(), 1);
  EXPECT_LE(budget.cpu_count(), mine.size());
}

}  // namespace
}  // namespace ait
