// SPDX-License-Identifier: Apache-2.0
// What is said where NCCL cannot be used: on every machine, with NCCL or without.
#include "ait/comm/nccl.h"

#include "ait/comm/store.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::StatusIs;

const NcclOptions kNowhere{.devices = DeviceRuntime::Open({.library = "/nowhere/libcudart.so"}),
                           .library = "/nowhere/libnccl.so.2"};

TEST(Nccl, WithoutALibraryItSaysSo) {
  EXPECT_THAT(DescribeNccl(kNowhere),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no NCCL")));
}

TEST(Nccl, WithoutAGpuNobodyJoins) {
  const auto store = MakeProcessStore();
  EXPECT_THAT(JoinNccl(*store, "group", Rank(0), WorldSize(1), Deadline::Infinite(), kNowhere),
              StatusIs(StatusCode::kFailedPrecondition,
                       AnyOf(HasSubstr("NCCL needs a GPU"), HasSubstr("no NCCL"))));
}

/// Also on a machine that has the libraries and no driver.
TEST(Nccl, TheMachineAsItIs) {
  const auto store = MakeProcessStore();
  const auto joined =
      JoinNccl(*store, "group", Rank(0), WorldSize(1), Deadline::After(std::chrono::seconds(60)));
  if (DeviceRuntime::Open()->count() > 0) GTEST_SKIP() << "there is a GPU: see nccl_gpu_test";
  EXPECT_THAT(joined, StatusIs(StatusCode::kFailedPrecondition,
                               AnyOf(HasSubstr("no GPU"), HasSubstr("no NCCL"))));
}

TEST(Nccl, TheAgentOfTorchrunNeedsSomebodyWhoSpeaksToIt) {
  const auto provider = Nccl(kNowhere);
  EXPECT_EQ(provider->name(), "nccl");
  EXPECT_THAT(provider->JoinAgentStore({}, Deadline::Infinite()).status(),
              StatusIs(StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace ait
