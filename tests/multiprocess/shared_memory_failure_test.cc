// SPDX-License-Identifier: Apache-2.0
// Ranks that die or stop in every phase of every collective over shared memory: the others are told who
// it was, soon, and can go on without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ait/base/status.h"
#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::vector<Process> Ranks(const std::vector<std::string>& args, int size) {
  return SpawnRanks({.program = AIT_TEST_RANK, .args = args}, size);
}

/// Milliseconds that the failed operation took, as the rank says.
int Took(const std::string& output) {
  const std::size_t at = output.find("took ");
  return at == std::string::npos ? 1 << 30 : std::stoi(output.substr(at + 5));
}

using Where = std::tuple<const char*, const char*, const char*>;  // kind, memory, phase

class SharedMemoryFailure : public ::testing::TestWithParam<Where> {};

TEST_P(SharedMemoryFailure, KilledRankIsNamedAndTheOthersGoOn) {
  const auto& [kind, memory, phase] = GetParam();
  auto ranks = Ranks({kind, memory, phase, "kill", "60000"}, 3);
  for (const std::size_t r : {0u, 2u}) {
    const Exit exit = ranks[r].Wait();
    EXPECT_EQ(exit.code, 3) << exit.output;
    EXPECT_THAT(exit.output, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 has died"),
                                   HasSubstr("step 812, backward"), HasSubstr("2 survivors")));
    EXPECT_LT(Took(exit.output), 10'000) << "far from the deadline of a minute";
  }
}

std::string Name(const ::testing::TestParamInfo<Where>& info) {
  std::string name =
      StrCat(std::get<0>(info.param), "_", std::get<1>(info.param), "_", std::get<2>(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Arena, SharedMemoryFailure,
    ::testing::Combine(::testing::Values("all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                         "all-to-all", "gather", "scatter"),
                       ::testing::Values("arena"),
                       ::testing::Values("arriving", "arrived", "met", "ran", "done")),
    Name);
INSTANTIATE_TEST_SUITE_P(
    Foreign, SharedMemoryFailure,
    ::testing::Combine(::testing::Values("all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                         "all-to-all", "gather", "scatter", "barrier"),
                       ::testing::Values("foreign"),
                       ::testing::Values("arriving", "arrived", "met", "ran")),
    Name);

TEST(SharedMemoryFailures, KilledAtAnyMoment) {
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    auto ranks = Ranks({"storm", round % 2 == 0 ? "arena" : "foreign", "met", "none", "60000"}, 3);
    for (Process& rank : ranks) rank.ReadUntil("started");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    ranks[1].Signal(SIGKILL);
    for (const std::size_t r : {0u, 2u}) {
      const Exit exit = ranks[r].Wait();
      EXPECT_EQ(exit.code, 3) << round << ": " << exit.output;
      EXPECT_THAT(exit.output, AllOf(HasSubstr("rank 1"), HasSubstr("2 survivors"))) << round;
    }
  }
}

TEST(SharedMemoryFailures, KilledWhileTheGroupIsMade) {
  std::mt19937 random(3);
  for (int round = 0; round < 4; ++round) {
    auto ranks = Ranks({"storm", "arena", "met", "none", "5000"}, 3);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    ranks[1].Signal(SIGKILL);
    // Whether it died before, while or after the group was made: all end, by themselves.
    for (const std::size_t r : {0u, 2u}) {
      const Exit exit = ranks[r].Wait();
      EXPECT_THAT(exit.code, AnyOf(1, 3)) << exit.output;
      EXPECT_THAT(exit.output, AnyOf(HasSubstr("rank 1"), HasSubstr("rank 0 of 3"))) << round;
    }
  }
}

TEST(SharedMemoryFailures, StoppedRankIsNamedAfterTheDeadline) {
  for (const char* memory : {"arena", "foreign"}) {
    for (const char* phase : {"arriving", "arrived", "met", "ran"}) {
      auto ranks = Ranks({"all-reduce", memory, phase, "stop", "500"}, 3);
      for (const std::size_t r : {0u, 2u}) {
        const Exit exit = ranks[r].Wait();
        EXPECT_EQ(exit.code, 3) << memory << " " << phase << ": " << exit.output;
        EXPECT_THAT(exit.output, AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("rank 1"),
                                       HasSubstr("step 812, backward")))
            << memory << " " << phase;
      }
    }
  }
}

TEST(SharedMemoryFailures, StoppedRankThatGoesOnIsNoFailure) {
  for (const char* phase : {"arriving", "arrived", "met", "ran", "done"}) {
    auto ranks = Ranks({"all-reduce", "arena", phase, "stop", "60000"}, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ranks[1].Signal(SIGCONT);
    for (Process& rank : ranks) rank.ExpectExit(0, "OK");
  }
  auto ranks = Ranks({"all-reduce", "foreign", "met", "none", "60000"}, 3);
  ranks[1].Pause();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ranks[1].Resume();
  for (Process& rank : ranks) rank.ExpectExit(0, "OK");
}

TEST(SharedMemoryFailures, TwoRunsAtOnceDoNotMeet) {
  auto first = Ranks({"all-reduce", "arena", "met", "none", "60000"}, 3);
  auto second = Ranks({"all-to-all", "foreign", "met", "none", "60000"}, 2);
  for (Process& rank : first) rank.ExpectExit(0, "OK");
  for (Process& rank : second) rank.ExpectExit(0, "OK");
}

TEST(SharedMemoryFailures, KilledRunsLeaveNoNames) {
  const auto names = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      count += entry.path().string().find("ait") != std::string::npos;
    }
    return count;
  };
  const int before = names();
  auto ranks = Ranks({"storm", "arena", "met", "none", "60000"}, 2);
  for (Process& rank : ranks) rank.ReadUntil("started");
  EXPECT_EQ(names(), before);
  for (Process& rank : ranks) rank.Signal(SIGKILL);
  for (Process& rank : ranks) rank.Wait();
  EXPECT_EQ(names(), before);
}

}  // namespace
}  // namespace ait::testing
