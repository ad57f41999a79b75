// SPDX-License-Identifier: Apache-2.0
#include "cli/net_probe.h"

#include <set>
#include <thread>

#include "support/status_matchers.h"

namespace ait::cli {
namespace {

using ::testing::HasSubstr;

TEST(ProbeRounds, HoldEveryPairOnceAndEveryHostOnceARound) {
  const std::vector<std::vector<std::string>> cases = {
      {}, {"a"}, {"a", "a", "a"}, {"a", "b", "c", "d"}, {"a", "a", "b", "b", "c"}, {"", "", ""}};
  for (const std::vector<std::string>& hosts : cases) {
    std::set<std::pair<int, int>> pairs;
    for (const auto& round : ProbeRounds(hosts)) {
      std::set<std::string> used;
      for (const auto& [from, to] : round) {
        EXPECT_NE(from, to);
        EXPECT_TRUE(pairs.emplace(from, to).second) << from << " -> " << to;
        const auto name = [&](int rank) {
          const std::string& host = hosts[static_cast<std::size_t>(rank)];
          return host.empty() ? std::to_string(rank) : host;
        };
        EXPECT_TRUE(used.insert(name(from)).second) << name(from);
        if (name(to) == name(from)) continue;
        EXPECT_TRUE(used.insert(name(to)).second) << name(to);
      }
    }
    const std::size_t size = hosts.size();
    EXPECT_EQ(pairs.size(), size * (size - (size > 0 ? 1 : 0)));
  }
}

TEST(ProbeRounds, HostsThatDoNotMeetAreMeasuredAtTheSameTime) {
  std::vector<std::string> hosts;
  for (int host = 0; host < 16; ++host) hosts.push_back("host " + std::to_string(host));
  EXPECT_LE(ProbeRounds(hosts).size(), 60u) << "of 240 pairs";
}

TEST(ProbePairs, ARankThatCannotListenIsAResult) {
  const auto store = MakeProcessStore();
  std::vector<StatusOr<std::vector<PairResult>>> results(3, InternalError("not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      // 203.0.113.0/24 is for documentation: no interface has it.
      results[static_cast<std::size_t>(rank)] =
          ProbePairs(*store, {.rank = Rank(rank),
                              .size = WorldSize(3),
                              .address = rank == 1 ? "203.0.113.7" : "127.0.0.1"});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) {
    ASSERT_OK(result.status());
    ASSERT_EQ(result->size(), 6u);
    for (const PairResult& pair : *result) {
      if (pair.to == 1) {
        EXPECT_THAT(pair.error, HasSubstr("rank 1: cannot listen at 203.0.113.7"));
      } else {
        EXPECT_EQ(pair.error, "") << pair.from << " -> " << pair.to;
        EXPECT_GT(pair.latency_us, 0);
      }
    }
  }
}

}  // namespace
}  // namespace ait::cli
