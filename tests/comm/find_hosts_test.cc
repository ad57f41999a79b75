// SPDX-License-Identifier: Apache-2.0
#include "comm/find_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

std::string Described(const std::vector<int>& hosts) {
  return DescribeHosts(HostLayout::Of(hosts));
}

TEST(FindHosts, RanksOfOneIdentityShareAHost) {
  const auto store = MakeProcessStore();
  const std::vector<std::string> names = {"b", "a", "b", "c", "a"};
  std::vector<StatusOr<std::vector<int>>> found(5, InternalError("not asked"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 5; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      found[r] = FindHosts(*store, "here", Rank(rank), WorldSize(5), names[r],
                           Deadline::After(std::chrono::seconds(30)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& hosts : found) {
    ASSERT_OK(hosts);
    EXPECT_THAT(*hosts, ElementsAre(0, 1, 0, 2, 1));
  }
}

TEST(FindHosts, WhoDoesNotComeIsNamed) {
  const auto store = MakeProcessStore();
  EXPECT_THAT(FindHosts(*store, "here", Rank(0), WorldSize(2), "a",
                        Deadline::After(std::chrono::milliseconds(20)))
                  .status(),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1 did not tell its host")));
}

TEST(FindHosts, HostsAreDescribed) {
  EXPECT_EQ(Described({5}), "1 rank on 1 host: 0");
  EXPECT_EQ(Described({0, 0, 0, 1, 1}), "5 ranks on 2 hosts: 0 to 2; 3, 4");
  EXPECT_EQ(Described({0, 1, 0, 1}), "4 ranks on 2 hosts: 0, 2; 1, 3");
}

}  // namespace
}  // namespace ait::internal
