// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/memory_policy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "ait/topology/binding.h"
#include "ait/topology/budget.h"
#include "ait/topology/rank_layout.h"
#include "support/forbidden_calls.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

/// What the kernel says of the policy of a mapping: "prefer:0", "default".
std::string PolicyInNumaMaps(const void* address) {
  std::ifstream maps("/proc/thread-self/numa_maps");
  char wanted[32];
  std::snprintf(wanted, sizeof(wanted), "%lx", reinterpret_cast<unsigned long>(address));
  for (std::string start, policy, rest; maps >> start >> policy && std::getline(maps, rest);) {
    if (start == wanted) return policy;
  }
  return "";
}

class MemoryPolicy : public ::testing::Test {
 protected:
  void SetUp() override {
    Status status;
    std::thread([&] { status = PreferLocalMemory(); }).join();
    if (status.code() == StatusCode::kPermissionDenied) {
      GTEST_SKIP() << "set_mempolicy is forbidden here: " << status;
    }
  }
};

TEST_F(MemoryPolicy, IsThatOfTheThreadAndOfThoseItStarts) {
  const int node = ReadBudget().value().memory_nodes->value.front();
  std::thread([node] {
    EXPECT_EQ(PreferredMemoryNode().value(), std::nullopt);
    ASSERT_OK(PreferMemoryOfNode(node));
    EXPECT_EQ(PreferredMemoryNode().value(), node);
    std::thread([node] { EXPECT_EQ(PreferredMemoryNode().value(), node); }).join();
    constexpr std::size_t kBytes = std::size_t{1} << 16;
    void* const block =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(block, MAP_FAILED);
    *static_cast<char*>(block) = 1;
    EXPECT_THAT(PolicyInNumaMaps(block), HasSubstr("prefer")) << "the kernel's own word";
    munmap(block, kBytes);
    ASSERT_OK(PreferLocalMemory());
    EXPECT_EQ(PreferredMemoryNode().value(), std::nullopt);
  }).join();
  EXPECT_EQ(PreferredMemoryNode().value(), std::nullopt) << "another thread's";
}

TEST(MemoryPolicyForbidden, IsAnErrorAndALayoutThenRestsOnFirstTouch) {
  testing::ExpectInChild({SYS_set_mempolicy, SYS_get_mempolicy}, EPERM, [] {
    EXPECT_THAT(PreferMemoryOfNode(0), StatusIs(StatusCode::kPermissionDenied));
    const CpuSet here = ThisThreadBinding().value();
    const RankLayout layout = {.cpus = here,
                               .compute = here,
                               .communication = here,
                               .loaders = here,
                               .nodes = {0},
                               .memory_node = 0};
    ASSERT_OK_AND_ASSIGN(const AppliedLayout applied, ApplyRankLayout(layout));
    EXPECT_FALSE(applied.memory_preferred);
    EXPECT_THAT(applied.memory, HasSubstr("first touch: set_mempolicy for node 0"));
  });
  testing::ExpectInChild({SYS_set_mempolicy, SYS_get_mempolicy}, ENOSYS, [] {
    EXPECT_THAT(PreferMemoryOfNode(0), StatusIs(StatusCode::kUnimplemented));
  });
}

TEST_F(MemoryPolicy, RefusesANodeThatIsNotThere) {
  std::thread([] {
    for (const int node : {-1, 999, 1023, 1024, 65'535}) {
      EXPECT_THAT(PreferMemoryOfNode(node),
                  StatusIs(StatusCode::kInvalidArgument, HasSubstr(StrCat("node ", node))));
    }
    EXPECT_EQ(PreferredMemoryNode().value(), std::nullopt);
  }).join();
}

}  // namespace
}  // namespace ait
