// SPDX-License-Identifier: Apache-2.0
// What the ranks of a Gloo group say when one of them dies, hangs or ends early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <vector>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

std::vector<Process> Spawn(std::vector<std::string> args, int size) {
  auto ranks = SpawnRanks(
      {.program = AIT_TEST_RANK, .args = std::move(args), .timeout = std::chrono::seconds(30)},
      size);
  for (Process& rank : ranks) rank.ReadUntil("ready");
  return ranks;
}

TEST(GlooFailure, ARankKilledInACollectiveIsNamedByTheOthers) {
  for (const int victim : {0, 1, 2}) {
    auto ranks = Spawn({"loop"}, 3);
    ranks[static_cast<std::size_t>(victim)].Signal(SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const Exit exit = ranks[static_cast<std::size_t>(rank)].Wait();
      EXPECT_EQ(exit.code, 3);
      EXPECT_THAT(exit.output, HasSubstr("UNAVAILABLE"));
      EXPECT_THAT(exit.output, HasSubstr("rank " + std::to_string(victim) + " died"));
      EXPECT_THAT(exit.output, HasSubstr("all-reduce"));
    }
  }
}

TEST(GlooFailure, ARankKilledBetweenCollectivesIsNamedByTheNext) {
  auto ranks = Spawn({"after"}, 3);
  ranks[1].Signal(SIGKILL);
  for (const std::size_t rank : {0, 2}) {
    const Exit exit = ranks[rank].Wait();
    EXPECT_EQ(exit.code, 3);
    EXPECT_THAT(exit.output, HasSubstr("first: UNAVAILABLE"));
    EXPECT_THAT(exit.output, HasSubstr("rank 1 died"));
    EXPECT_THAT(exit.output, HasSubstr("\nABORTED"));
  }
}

TEST(GlooFailure, ARankThatHangsIsNamedAtTheDeadline) {
  for (const int victim : {0, 1, 2}) {
    auto ranks = Spawn({"loop", "1500"}, 3);
    Process& hanging = ranks[static_cast<std::size_t>(victim)];
    hanging.Pause();  // of rank 0: with it the store
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const Exit exit = ranks[static_cast<std::size_t>(rank)].Wait();
      EXPECT_EQ(exit.code, 3);
      EXPECT_THAT(exit.output, HasSubstr("DEADLINE_EXCEEDED"));
      EXPECT_THAT(exit.output,
                  HasSubstr(victim == 0 ? "rank 0 of the world, which serves the store"
                                        : "rank " + std::to_string(victim) + " did not come"));
    }
    hanging.Resume();
    hanging.ExpectExit(3);
  }
}

TEST(GlooFailure, ExitWithWorkInFlightDoesNotCrash) {
  auto ranks = Spawn({"exit"}, 2);
  ranks[1].ExpectExit(0);
  ranks[0].ExpectExit(3, "rank 1");
}

}  // namespace
}  // namespace ait::testing
