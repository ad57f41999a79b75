// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/system_roots.h"

#include <gtest/gtest.h>

#include <fstream>

#include "ait/topology/budget.h"
#include "ait/topology/machine.h"
#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

TEST(SystemRoots, AreThoseOfThisMachineByDefault) {
  EXPECT_EQ(SystemRoots().proc, "/proc");
  EXPECT_EQ(SystemRoots().sys, "/sys");
}

TEST(SystemRoots, EverythingThatIsReadLiesBelowThem) {
  testing::Fixture fixture;
  fixture.MakeTwoSockets();
  fixture.Write("proc/self/cgroup", "0::/a\n");
  fixture.Write("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  fixture.Write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  EXPECT_EQ(machine.cpus.size(), 16u);
  ASSERT_OK_AND_ASSIGN(const Budget budget, ReadBudget(fixture.roots()));
  EXPECT_TRUE(budget.affinity.source.starts_with(fixture.roots().proc)) << budget.affinity.source;
  EXPECT_TRUE(budget.cpu_quota->source.starts_with(fixture.roots().sys))
      << budget.cpu_quota->source;
}

// The mount point is a path of the machine that is described, not of this one.
TEST(SystemRoots, AMountOutsideOfSysIsNotLookedForOnThisMachine) {
  testing::Fixture fixture;
  fixture.MakeTwoSockets();
  const testing::TempDir elsewhere;
  std::ofstream(elsewhere / "cpu.max") << "150000 100000\n";
  fixture.Write("proc/self/cgroup", "0::/\n");
  fixture.Write("proc/self/mountinfo",
                StrCat("30 24 0:26 / ", elsewhere.path(), " rw - cgroup2 cgroup2 rw\n"));
  ASSERT_OK_AND_ASSIGN(const Budget budget, ReadBudget(fixture.roots()));
  EXPECT_EQ(budget.cpu_quota, std::nullopt);
}

}  // namespace
}  // namespace ait
