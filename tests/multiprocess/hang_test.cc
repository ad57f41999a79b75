// SPDX-License-Identifier: Apache-2.0
// What a run of processes says of a rank that hangs, is stopped, is killed or means something else,
// while it waits and when it is over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSize = 3;

std::vector<Process> Spawn(std::vector<std::string> args, const std::string& directory = "",
                           int size = kSize) {
  SpawnOptions options{.program = AIT_TEST_RANK, .args = std::move(args)};
  if (!directory.empty()) options.environment["AIT_FLIGHT_DIRECTORY"] = directory;
  auto ranks = SpawnRanks(options, size);
  for (Process& rank : ranks) rank.ReadUntil("ready");
  return ranks;
}

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

TEST(Hang, ARankThatStaysElsewhereIsNamedWithItsStepAndPhase) {
  const TempDir directory;
  auto ranks = Spawn({"data", "6000", "500"}, directory / "flight");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(ranks[rank].ReadUntil("hang report"),
                AllOf(HasSubstr("all-reduce (sum) of 1000 float32, sequence 2, bucket 7"),
                      HasSubstr("rank 2 (pid " + std::to_string(ranks[2].pid()) + " on "),
                      HasSubstr("is missing: last seen at step 812, data, for ")));
  }
  // All ranks have written their records when they were asked: also the one to blame.
  while (!ReadJson(directory / "flight/rank-2.json").is_object()) {
  }
  EXPECT_EQ(ReadJson(directory / "flight/rank-2.json")["phase"], "data");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Exit exit = ranks[rank].Wait();
    EXPECT_EQ(exit.code, 3);
    EXPECT_THAT(exit.output, AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("; hang report: "),
                                   HasSubstr("step 812, data")));
  }
}

TEST(Hang, ARankThatIsStoppedIsToldFromOneThatIsElsewhereAndMayComeBack) {
  auto ranks = Spawn({"loop", "60000", "500"});
  ranks[1].ReadUntil("ready");
  ranks[2].Pause();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(
        ranks[rank].ReadUntil("hang report"),
        AllOf(HasSubstr("rank 2 (pid " + std::to_string(ranks[2].pid())),
              HasSubstr("does not answer (stopped, or its host hangs): last seen at step")));
  }
  ranks[2].Resume();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks[rank].ReadUntil("the wait that the last hang report tells of is over");
    EXPECT_TRUE(ranks[rank].running());
  }
  ranks[2].Signal(SIGKILL);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Exit exit = ranks[rank].Wait();
    EXPECT_EQ(exit.code, 3);
    EXPECT_THAT(exit.output, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 2 died"),
                                   Not(HasSubstr("DEADLINE_EXCEEDED"))));
  }
}

TEST(Hang, RankZeroThatIsStoppedTakesTheControlPlaneWithIt) {
  auto ranks = Spawn({"loop", "15000", "500"});
  ranks[0].Pause();
  for (std::size_t rank = 1; rank < 3; ++rank) {
    ranks[rank].ReadUntil("rank 0 of the world, which serves the store, does not answer");
    ranks[rank].ExpectExit(3, "DEADLINE_EXCEEDED");
  }
  ranks[0].Resume();
  ranks[0].ExpectExit(3);
}

TEST(Hang, AFailureLeavesTheRecordsOfAllWhoLive) {
  const TempDir directory;
  auto ranks = Spawn({"loop", "30000", "5000"}, directory / "flight");
  ranks[1].Signal(SIGKILL);
  for (const std::size_t rank : {0, 2}) {
    ranks[rank].ExpectExit(3, "rank 1 died");
    const nlohmann::json file =
        ReadJson(directory / ("flight/rank-" + std::to_string(rank) + ".json"));
    ASSERT_TRUE(file.is_object());
    EXPECT_THAT(file["failure"].get<std::string>(), HasSubstr("rank 1 died"));
    EXPECT_GT(file["operations"].size(), 0u);
  }
  EXPECT_FALSE(ReadJson(directory / "flight/rank-1.json").is_object());
}

/// The ranks whose bytes are in the sum that `survive` prints.
std::string SumOf(std::vector<int> ranks) {
  std::int64_t sum = 0;
  for (const int rank : ranks) sum += std::int64_t{1} << (8 * rank);
  return "sum " + std::to_string(sum) + " of " + std::to_string(ranks.size());
}

TEST(Survivors, GoOnAfterARankWasKilledAndAfterTheNext) {
  auto ranks = Spawn({"survive", "30000", "5000"}, "", 4);
  for (Process& rank : ranks) rank.ReadUntil(SumOf({0, 1, 2, 3}));
  ranks[2].Signal(SIGKILL);
  for (const std::size_t rank : {0, 1, 3}) {
    EXPECT_THAT(ranks[rank].ReadUntil(SumOf({0, 1, 3})), HasSubstr("rank 2 died"));
  }
  ranks[1].Signal(SIGKILL);
  for (const std::size_t rank : {0, 3}) ranks[rank].ReadUntil(SumOf({0, 3}));
}

TEST(Survivors, TwoMayDieAtOnceOrOneDuringTheRebuild) {
  auto ranks = Spawn({"survive", "30000", "5000"}, "", 5);
  for (Process& rank : ranks) rank.ReadUntil(SumOf({0, 1, 2, 3, 4}));
  ranks[3].Pause();  // lives, and does not call: the others wait for it
  ranks[4].Signal(SIGKILL);
  for (const std::size_t rank : {0, 1, 2}) ranks[rank].ReadUntil("rank 4 died");
  ranks[3].Signal(SIGKILL);
  for (const std::size_t rank : {0, 1, 2}) ranks[rank].ReadUntil(SumOf({0, 1, 2}));
  ranks[1].Signal(SIGKILL);
  ranks[2].Signal(SIGKILL);
  ranks[0].ReadUntil(SumOf({0}));
}

TEST(Survivors, WithoutRankZeroThereIsNoneAndTheErrorSaysWhy) {
  auto ranks = Spawn({"survive", "30000", "5000"});
  for (Process& rank : ranks) rank.ReadUntil(SumOf({0, 1, 2}));
  ranks[0].Signal(SIGKILL);
  for (const std::size_t rank : {1, 2}) {
    const Exit exit = ranks[rank].Wait();
    EXPECT_EQ(exit.code, 3);
    EXPECT_THAT(exit.output,
                AllOf(HasSubstr("rank 0 died"), HasSubstr("without rank 0 of the world, which "
                                                          "served the store; start the run anew")));
  }
}

}  // namespace
}  // namespace ait::testing
