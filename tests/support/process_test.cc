// SPDX-License-Identifier: Apache-2.0
#include "support/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

Process Puppet(std::vector<std::string> args) {
  return Process::Spawn({.program = AIT_TEST_PUPPET, .args = std::move(args)});
}

TEST(Process, GivesExitCodeAndBothStreams) {
  Process process = Puppet({"print", "hello", "error", "oops", "exit", "7"});
  process.ExpectExit(7, "hello");
  EXPECT_EQ(process.standard_output(), "hello\n");
  EXPECT_EQ(process.standard_error(), "oops\n");
}

TEST(Process, CountsASignalAs128AndItsNumber) {
  Process process = Puppet({"print", "ready", "sleep", "0"});
  process.ReadUntil("ready");
  process.Signal(SIGKILL);
  process.ExpectExit(128 + SIGKILL);
}

TEST(Process, PausesAndResumes) {
  Process process = Puppet({"print", "ready", "sleep", "1", "exit", "3"});
  process.Pause();
  EXPECT_TRUE(process.running());
  process.Resume();
  process.ExpectExit(3);
}

TEST(Process, GivesInputAndEnvironmentAndLeaksNoDescriptor) {
  Process process = Process::Spawn({.program = AIT_TEST_PUPPET,
                                    .args = {"copy", "env", "COLOUR", "env", "RANK", "fds"},
                                    .environment = {{"COLOUR", "blue"}},
                                    .input = "typed\n"});
  process.ExpectExit(0, "typed\nCOLOUR=blue\nRANK is unset\nfds 0 1 2\n");
}

TEST(Process, KillsGrandchildrenWhenItGoesOutOfScope) {
  pid_t grandchild = 0;
  {
    Process process = Puppet({"stubborn", "print", "ready", "sleep", "0"});
    const std::string text = process.ReadUntil("ready");
    grandchild = std::atoi(text.c_str() + text.find("child ") + 6);
    ASSERT_EQ(kill(grandchild, 0), 0);
  }
  EXPECT_TRUE(IsGone(grandchild));
}

TEST(Process, KnowsWhenItsGroupIsGone) {
  Process process = Puppet({"child", "print", "ready", "exit", "0"});
  process.ExpectExit(0, "ready");
  EXPECT_FALSE(IsGone(std::atoi(process.output().c_str() + process.output().find("child ") + 6),
                      std::chrono::seconds(0)));
  kill(-process.pid(), SIGKILL);
  EXPECT_TRUE(process.GroupIsGone());
}

TEST(Process, ATimeOutFailsTheTest) {
  EXPECT_NONFATAL_FAILURE(
      {
        Process process = Process::Spawn({.program = AIT_TEST_PUPPET,
                                          .args = {"sleep", "0"},
                                          .timeout = std::chrono::seconds(1)});
        process.Wait();
      },
      "did not end within 1 s");
}

TEST(Process, AProgramThatIsNotThereEndsWith127) {
  Process::Spawn({.program = "/nowhere/program"}).ExpectExit(127, "No such file");
}

TEST(SpawnRanks, GiveEachRankItsPlaceAndRankZeroTheSocket) {
  auto ranks = SpawnRanks({.program = AIT_TEST_PUPPET,
                           .args = {"env", "RANK", "env", "WORLD_SIZE", "env", "OMP_NUM_THREADS",
                                    "fds", "if", "0", "listen", "connect"}},
                          2);
  ASSERT_EQ(ranks.size(), 2u);
  ranks[1].ExpectExit(0, "RANK=1\nWORLD_SIZE=2\nOMP_NUM_THREADS=1\nfds 0 1 2\n");
  EXPECT_THAT(ranks[0].Wait().output,
              HasSubstr("RANK=0\nWORLD_SIZE=2\nOMP_NUM_THREADS=1\nfds 0 1 2 3\nconnected\n"));
}

}  // namespace
}  // namespace ait::testing
