// SPDX-License-Identifier: Apache-2.0
// Several hosts: what is chosen where, and what the ranks of all hosts say when one rank dies or
// hangs. Hosts are network namespaces where this machine allows them, else pretended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <vector>

#include "support/network_hosts.h"
#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Process> Spawn(std::vector<std::string> args, int size) {
  auto ranks = SpawnRanks(
      {.program = AIT_TEST_RANK, .args = std::move(args), .timeout = std::chrono::seconds(60)},
      size);
  for (Process& rank : ranks) rank.ReadUntil("ready");
  return ranks;
}

TEST(Hosts, OnOneHostMemoryIsChosen) {
  for (Process& rank : Spawn({"auto", "once"}, 3)) {
    const Exit exit = rank.Wait();
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output, AllOf(HasSubstr("shared-memory: 3 ranks on 1 host: 0 to 2"),
                                   HasSubstr("transport shared-memory")));
  }
}

TEST(Hosts, ARankKilledOnOneHostIsNamedOnAll) {
  for (const std::size_t victim : {0u, 1u, 3u}) {
    auto ranks = Spawn({"pretend", "loop"}, 4);
    ranks[victim].Signal(SIGKILL);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const Exit exit = ranks[rank].Wait();
      EXPECT_EQ(exit.code, 3);
      EXPECT_THAT(exit.output, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("all-reduce"),
                                     HasSubstr(StrCat("rank ", victim, " died"))));
    }
  }
}

TEST(Hosts, ARankThatHangsOnOneHostIsNamedOnAllAtTheDeadline) {
  for (const std::size_t victim : {1u, 2u}) {
    auto ranks = Spawn({"pretend", "loop", "2000"}, 4);
    ranks[victim].Pause();
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const Exit exit = ranks[rank].Wait();
      EXPECT_EQ(exit.code, 3);
      EXPECT_THAT(exit.output, AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                                     HasSubstr(StrCat("rank ", victim, " did not come"))));
    }
    ranks[victim].Resume();
    ranks[victim].ExpectExit(3);
  }
}

/// Starts a program as the ranks of hosts that are network namespaces, two on each.
std::vector<Process> SpawnOnHosts(const NetworkHosts& hosts, int count, const std::string& program,
                                  const std::vector<std::string>& args) {
  std::vector<Process> ranks;
  for (int rank = 0; rank < 2 * count; ++rank) {
    std::vector<std::string> words = hosts.Command(rank / 2);
    SpawnOptions options{.program = words.front(), .timeout = std::chrono::seconds(120)};
    options.args.assign(words.begin() + 1, words.end());
    options.args.push_back(program);
    options.args.insert(options.args.end(), args.begin(), args.end());
    options.environment = {{"RANK", StrCat(rank)},
                           {"WORLD_SIZE", StrCat(2 * count)},
                           {"LOCAL_RANK", StrCat(rank % 2)},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", hosts.address(0)},
                           {"MASTER_PORT", "29413"},
                           {"OMP_NUM_THREADS", "1"},
                           {"AIT_DESCRIBE", "1"}};
    ranks.push_back(Process::Spawn(options));
  }
  return ranks;
}

TEST(Hosts, BetweenNetworksTheHierarchyIsChosen) {
  auto hosts = NetworkHosts::Create(2, "");
  if (!hosts.ok()) GTEST_SKIP() << Message(hosts.status());
  for (Process& rank : SpawnOnHosts(*hosts, 2, AIT_TEST_RANK, {"auto", "once"})) {
    const Exit exit = rank.Wait();
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output, AllOf(HasSubstr("hierarchical: 4 ranks on 2 hosts: 0, 1; 2, 3"),
                                   HasSubstr("transport hierarchical")));
  }
}

#ifdef AIT_TEST_GPT
TEST(Hosts, AGptIsTrainedOverTwoHosts) {
  auto hosts = NetworkHosts::Create(2, "1gbit");
  if (!hosts.ok()) GTEST_SKIP() << Message(hosts.status());
  const TempDir folder;
  Process pack =
      Process::Spawn({.program = AIT_TEST_PROGRAM,
                      .args = {"pack", "text", AIT_TEST_TEXT, "--out", folder / "data"}});
  pack.ExpectExit(0);
  for (const std::string transport : {"auto", "gloo"}) {
    auto ranks =
        SpawnOnHosts(*hosts, 2, AIT_TEST_GPT,
                     {"train", "--data", folder / "data", "--out", folder / ("out-" + transport),
                      "--size", "tiny", "--steps", "5", "--bf16", "0", "--transport", transport});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Exit exit = ranks[rank].Wait();
      EXPECT_EQ(exit.code, 0) << exit.output;
      if (rank > 0) continue;
      EXPECT_THAT(exit.output, HasSubstr("after 5 steps"));
      EXPECT_THAT(exit.output, HasSubstr(transport == "auto" ? "automatic: hierarchical" : "gloo"));
    }
  }
}
#endif

}  // namespace
}  // namespace ait::testing
