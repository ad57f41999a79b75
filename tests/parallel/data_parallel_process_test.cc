// SPDX-License-Identifier: Apache-2.0
// DataParallel over processes: the same bits as over threads, and what happens when a rank is
// killed.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

#include "parallel/training.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Exit;
using ::ait::testing::Phase;
using ::ait::testing::Process;
using ::ait::testing::RunRanks;
using ::ait::testing::SpawnRanks;
using ::ait::testing::TrainTiny;
using ::testing::HasSubstr;

// Everything that lies in shared memory, whatever its name.
std::set<std::string> SharedMemory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

// What is there now and was not before. Other processes of the machine come and go: what they leave
// for a moment is waited for, what a dead rank leaves stays.
std::set<std::string> LeftInSharedMemory(const std::set<std::string>& before) {
  std::set<std::string> left;
  for (int i = 0; i < 100; ++i) {
    left.clear();
    std::ranges::set_difference(SharedMemory(), before, std::inserter(left, left.end()));
    if (left.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return left;
}

TEST(DataParallelProcesses, GiveTheSameBitsAsThreads) {
  auto ranks = SpawnRanks({.program = AIT_TEST_RANK}, 2);
  std::vector<std::string> bits(2);
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    auto result = TrainTiny(communicator, 6, [](int, Phase) {});
    ASSERT_OK(result);
    bits[static_cast<std::size_t>(communicator->rank().value())] = *result;
  });
  EXPECT_EQ(bits[0], bits[1]);
  for (Process& rank : ranks) rank.ExpectExit(0, "bits " + bits[0]);
}

class DataParallelDeath : public ::testing::TestWithParam<const char*> {};

TEST_P(DataParallelDeath, OfOneRankEndsTheOthersWithAStatusThatNamesIt) {
  const std::set<std::string> before = SharedMemory();
  auto ranks = SpawnRanks({.program = AIT_TEST_RANK, .args = {GetParam()}}, 3);
  EXPECT_EQ(ranks[1].Wait().code, 128 + SIGKILL);
  for (const std::size_t survivor : {0u, 2u}) {
    const Exit exit = ranks[survivor].Wait();
    EXPECT_EQ(exit.code, 3) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr(StrCat("rank ", survivor, " ends:")));
    EXPECT_THAT(exit.output, HasSubstr("rank 1"));
    EXPECT_THAT(exit.output, HasSubstr("step"));
  }
  for (Process& rank : ranks) EXPECT_TRUE(rank.GroupIsGone());
  EXPECT_THAT(LeftInSharedMemory(before), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Phases, DataParallelDeath,
                         ::testing::Values("forward", "backward", "collective", "step"),
                         [](const auto& phase) { return std::string(phase.param); });

}  // namespace
}  // namespace ait
