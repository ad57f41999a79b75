// SPDX-License-Identifier: Apache-2.0
// What needs no second process; the choice itself is tested in tests/multiprocess/hosts_test.cc.
#include "ait/comm/automatic.h"

#include <gtest/gtest.h>

#include "ait/comm/store.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(Automatic, NeedsSomethingBetweenHosts) {
  for (const auto& provider : {Automatic({}), Hierarchical({})}) {
    EXPECT_THAT(provider->Connect({}, nullptr, Deadline::Infinite()).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("`between` is missing")));
    EXPECT_THAT(provider->JoinAgentStore({}, Deadline::Infinite()).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("Gloo()")));
  }
  EXPECT_EQ(Automatic({})->name(), "automatic");
  EXPECT_EQ(Hierarchical({})->name(), "hierarchical");
}

}  // namespace
}  // namespace ait
