// SPDX-License-Identifier: Apache-2.0
// Memory on real NUMA nodes: boots emulated machines and runs numa_vm_guest in them.
#include <gtest/gtest.h>

#include "support/process.h"

namespace ait {
namespace {

/// Runs the guest's suite `suite` on a machine of these nodes.
void RunInMachine(const std::string& suite, const std::string& memory, const std::string& cpus) {
  auto machine = testing::Process::Spawn(
      {.program = AIT_TEST_NUMA_VM,
       .args = {"--cache", AIT_TEST_NUMA_VM_CACHE, "--memory", memory, "--cpus", cpus,
                // Else the kernel moves pages without a policy to the threads that use them.
                "--append", "numa_balancing=disable", AIT_TEST_NUMA_VM_GUEST,
                "--gtest_filter=" + suite + ".*", "--gtest_brief=1"},
       .timeout = std::chrono::seconds(170)});
  const testing::Exit exit = machine.Wait();
  if (exit.code == 77) GTEST_SKIP() << exit.output;
  EXPECT_EQ(exit.code, 0) << exit.output;
  // The suite ran: an empty filter would pass as well.
  EXPECT_NE(exit.output.find("PASSED"), std::string::npos) << exit.output;
  EXPECT_EQ(exit.output.find("PASSED  ] 0 tests"), std::string::npos) << exit.output;
}

TEST(NumaMachine, TwoNodes) { RunInMachine("TwoNodes", "384,256", "1,1"); }

TEST(NumaMachine, FourNodes) { RunInMachine("FourNodes", "256,160,160,160", "1,1,1,1"); }

// One as usual, one of CPUs alone, two of memory alone.
TEST(NumaMachine, OddNodes) { RunInMachine("OddNodes", "256,0,160,160", "1,1,0,0"); }

}  // namespace
}  // namespace ait
