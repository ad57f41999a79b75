// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/thread_group.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::IsOk;

TEST(ThreadGroup, EveryRankOfTheGroupGetsTheSum) {
  const auto ranks = MakeThreadGroup(WorldSize(4));
  ASSERT_EQ(ranks.size(), 4u);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&rank] {
      EXPECT_EQ(rank->size(), WorldSize(4));
      EXPECT_EQ(rank->transport_name(), "threads");
      std::vector<float> x(10000, static_cast<float>(rank->rank().value()));
      EXPECT_OK(rank->AllReduce(View(x), ReduceOp::kSum).Wait());
      EXPECT_EQ(x, std::vector<float>(10000, 6.0f));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadGroup, OneThreadMayIssueForAllRanks) {
  const auto ranks = MakeThreadGroup(WorldSize(8));
  std::vector<std::int64_t> values(8);
  std::vector<Work> works;
  for (std::size_t r = 0; r < 8; ++r) {
    values[r] = static_cast<std::int64_t>(1) << r;
    works.push_back(ranks[r]->AllReduce(View(std::span(values).subspan(r, 1)), ReduceOp::kSum));
  }
  EXPECT_OK(WaitAll(works));
  EXPECT_EQ(values, std::vector<std::int64_t>(8, 255));
}

}  // namespace
}  // namespace ait
