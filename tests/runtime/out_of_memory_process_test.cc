// SPDX-License-Identifier: Apache-2.0
// Memory that really runs out, in processes of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "observe/own_cgroup.h"
#include "support/process.h"

namespace ait {
namespace {

using ::ait::testing::Exit;
using ::ait::testing::OwnCgroup;
using ::ait::testing::Process;
using ::testing::AllOf;
using ::testing::HasSubstr;

Exit Leak(const std::string& how, const std::string& where) {
  return Process::Spawn({.program = AIT_TEST_LEAKING, .args = {how, where}}).Wait();
}

TEST(OutOfMemory, AtTheLimitOfTheAddressSpaceTheStepFailsWithAReport) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more address space than the limit leaves";
#endif
  const Exit exit = Leak("address-space", "300");
  EXPECT_EQ(exit.code, 0) << exit.output;
  // The buffer or the tensor, whichever comes first.
  EXPECT_THAT(exit.output, AllOf(HasSubstr("out of memory in forward: "), HasSubstr(" asked, "),
                                 HasSubstr("Max address space"), HasSubstr("forward/history: "),
                                 HasSubstr("\n            1. a micro-batch of 1/")));
}

TEST(OutOfMemory, InACgroupTheStepEndsBeforeTheKernelKills) {
  // The program takes about 100 MiB before it leaks.
  const OwnCgroup group(MiB(200));
  if (!group.why_not().empty()) GTEST_SKIP() << group.why_not();
  const Exit exit = Leak("cgroup", group.path());
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, AllOf(HasSubstr("nearly out of memory in "), HasSubstr(group.path()),
                                 HasSubstr("the step ends before the kernel ends the process"),
                                 HasSubstr("forward/history: ")));
}

}  // namespace
}  // namespace ait
