// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/staging.h"

#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <thread>
#include <vector>

#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What can be said without a GPU; staging_device_test.cc has the rest.
class StagingOnTheHost : public ::testing::Test {
 protected:
  const std::shared_ptr<StatisticsResource> memory_ =
      StatisticsResource::Create(HeapResource::Create());
  const std::shared_ptr<Staging> staging_ = *Staging::Create(
      {.memory = memory_, .gpus = DeviceRuntime::Open({.library = "/nowhere/libcudart.so"})});
};

TEST_F(StagingOnTheHost, ACopyIsAPlainOneAndDone) {
  const at::Tensor from = at::arange(12, at::kFloat).view({3, 4});
  at::Tensor to = at::empty({3, 4});
  ASSERT_OK_AND_ASSIGN(StagedCopy copy, staging_->Copy(to, from));
  EXPECT_TRUE(to.equal(from));
  EXPECT_TRUE(*copy.Done());
  EXPECT_OK(copy.Wait());
  EXPECT_OK(copy.Wait());
  EXPECT_EQ(staging_->statistics().copy_count, 1);
  EXPECT_EQ(staging_->statistics().staged_count, 0);
  EXPECT_EQ(memory_->statistics().total_count, 0);
}

TEST_F(StagingOnTheHost, EmptyTensorsAreCopied) {
  ASSERT_OK_AND_ASSIGN(StagedCopy copy, staging_->Copy(at::empty({0, 2}), at::empty({0, 2})));
  EXPECT_OK(copy.Wait());
}

TEST_F(StagingOnTheHost, RefusesTensorsThatDoNotMatch) {
  const at::Tensor tensor = at::ones({2, 3});
  EXPECT_THAT(staging_->Copy(at::ones({3, 2}), tensor),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("Float (2, 3)"), HasSubstr("Float (3, 2)"))));
  EXPECT_THAT(staging_->Copy(at::ones({2, 3}, at::kLong), tensor),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Long (2, 3)")));
  EXPECT_THAT(staging_->Copy(at::ones({3, 2}).t(), tensor),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("`to`"), HasSubstr("not contiguous"))));
  EXPECT_THAT(staging_->Copy(tensor, at::Tensor()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("`from` is undefined")));
  EXPECT_THAT(staging_->Copy(at::empty({2, 3}, at::kMeta), tensor),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("meta")));
}

TEST_F(StagingOnTheHost, RefusesOptionsThatAreNone) {
  EXPECT_THAT(Staging::Create({.max_in_flight = Bytes(0)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 bytes in flight")));
}

TEST_F(StagingOnTheHost, ThreadsMayCopyAtOnce) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const at::Tensor from = at::ones({100}).mul(t);
      at::Tensor to = at::empty({100});
      for (int i = 0; i < 100; ++i) EXPECT_OK(staging_->Copy(to, from));
      EXPECT_TRUE(to.equal(from));
    });
  }
}

}  // namespace
}  // namespace ait
