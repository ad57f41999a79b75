// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/binding.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <optional>
#include <thread>
#include <utility>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

/// A CPU that this thread may use, the last one so that it is not always 0.
CpuSet OneCpu() {
  const CpuSet all = ThisThreadBinding().value();
  return {all[all.size() - 1]};
}

TEST(Binding, IsReadBackAndObeyed) {
  const CpuSet one = OneCpu();
  std::thread([&] {
    ASSERT_OK(BindThisThread(one));
    EXPECT_EQ(ThisThreadBinding().value(), one);
    EXPECT_EQ(sched_getcpu(), one.front());
  }).join();
}

TEST(Binding, IsOfTheCallingThreadAlone) {
  const CpuSet before = ThisThreadBinding().value();
  const CpuSet one = OneCpu();
  std::thread([&] { ASSERT_OK(BindThisThread(one)); }).join();
  EXPECT_EQ(ThisThreadBinding().value(), before);
}

TEST(Binding, RefusesTheEmptySet) {
  EXPECT_THAT(BindThisThread(CpuSet()), StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty")));
}

TEST(Binding, NamesCpusThatAreNotThereAndChangesNothing) {
  const CpuSet before = ThisThreadBinding().value();
  EXPECT_THAT(BindThisThread({60000}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("60000 are offline")));
  EXPECT_EQ(ThisThreadBinding().value(), before);
  // The kernel takes what exists of such a set and says nothing; we do.
  EXPECT_THAT(BindThisThread(OneCpu() | CpuSet{60000}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("60000 are offline")));
  EXPECT_EQ(ThisThreadBinding().value(), before);
}

TEST(ScopedBinding, PutsTheOldBindingBack) {
  const CpuSet before = ThisThreadBinding().value();
  const CpuSet one = OneCpu();
  {
    ASSERT_OK_AND_ASSIGN(const ScopedBinding binding, ScopedBinding::Create(one));
    EXPECT_EQ(ThisThreadBinding().value(), one);
  }
  EXPECT_EQ(ThisThreadBinding().value(), before);
  EXPECT_FALSE(ScopedBinding::Create(CpuSet()).ok());
  EXPECT_EQ(ThisThreadBinding().value(), before);
}

TEST(ScopedBinding, MovesToItsNewOwner) {
  const CpuSet before = ThisThreadBinding().value();
  const CpuSet one = OneCpu();
  std::optional<ScopedBinding> outer;
  {
    ASSERT_OK_AND_ASSIGN(ScopedBinding inner, ScopedBinding::Create(one));
    outer.emplace(std::move(inner));
  }
  EXPECT_EQ(ThisThreadBinding().value(), one) << "the empty one restores nothing";
  outer.reset();
  EXPECT_EQ(ThisThreadBinding().value(), before);
}

TEST(ScopedBinding, DestroyedElsewhereStillRestoresItsThread) {
  const CpuSet before = ThisThreadBinding().value();
  const CpuSet one = OneCpu();
  ASSERT_OK_AND_ASSIGN(ScopedBinding binding, ScopedBinding::Create(one));
  std::thread([moved = std::move(binding)] {}).join();
  EXPECT_EQ(ThisThreadBinding().value(), before);
}

}  // namespace
}  // namespace ait
