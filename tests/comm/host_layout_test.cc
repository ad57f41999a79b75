// SPDX-License-Identifier: Apache-2.0
#include "comm/host_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ait::internal {
namespace {

using ::testing::ElementsAre;

TEST(HostLayout, HostsComeInTheOrderOfTheirLowestRank) {
  const HostLayout layout = HostLayout::Of(std::vector<int>{7, 3, 7, 3, 3});
  EXPECT_THAT(layout.hosts, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3, 4)));
  EXPECT_THAT(layout.host_of, ElementsAre(0, 1, 0, 1, 1));
  EXPECT_THAT(layout.local_of, ElementsAre(0, 0, 1, 1, 2));
  EXPECT_EQ(layout.width, 2);
  EXPECT_EQ(layout.ColumnOf(4), 0) << "local number 2 of 2 columns";
}

TEST(ColumnOrder, AColumnIsOneRangeAndInItAHost) {
  const HostLayout layout = HostLayout::Of(std::vector<int>{0, 0, 1, 1, 1});
  const ColumnOrder order = ColumnOrder::Of(layout, [](int rank) { return 10 + rank; });
  EXPECT_THAT(order.ranks, ElementsAre(0, 2, 4, 1, 3));
  EXPECT_THAT(order.offset, ElementsAre(0, 36, 10, 47, 22));
  EXPECT_THAT(order.begin, ElementsAre(0, 36, 60));
  EXPECT_THAT(order.of_host, ElementsAre(ElementsAre(10, 26), ElementsAre(11, 13)));
}

}  // namespace
}  // namespace ait::internal
