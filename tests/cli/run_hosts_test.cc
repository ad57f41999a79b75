// SPDX-License-Identifier: Apache-2.0
// `ait run --nodes` from outside: two launchers of this host, and one that is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "comm/tcp_store_socket.h"
#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

class AitRunHosts : public ::testing::Test {
 protected:
  Process Host(int index, std::vector<std::string> options, std::vector<std::string> commands) {
    options.insert(options.begin(), {"run", "--nodes", "2", "--node-rank", std::to_string(index),
                                     "--rendezvous", "127.0.0.1:" + std::to_string(port_)});
    options.insert(options.end(), {"--", AIT_TEST_PUPPET});
    options.insert(options.end(), commands.begin(), commands.end());
    return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(options)});
  }

  const std::uint16_t port_ =
      *internal::LocalPort(internal::Listen("127.0.0.1", 0)->get());  // free a moment ago
};

TEST_F(AitRunHosts, PrefixesRanksOfTheWholeRun) {
  Process zero = Host(0, {"-n", "1"}, {"env", "RANK"});
  Process one = Host(1, {"-n", "2"}, {"env", "RANK"});
  zero.ExpectExit(0, "[0] RANK=0\n");
  one.ExpectExit(0, "[2] RANK=2\n");
  EXPECT_THAT(zero.output(), HasSubstr("rank 0 of 3, master 127.0.0.1, port "));
  EXPECT_THAT(one.output(), HasSubstr("ranks 1 to 2 of 3"));
}

TEST_F(AitRunHosts, EndsWithTheCodeOfTheRankThatFailedElsewhere) {
  const std::vector<std::string> commands = {"if", "1",    "error", "it broke", "if",
                                             "1",  "exit", "7",     "sleep",    "0"};
  Process zero = Host(0, {"-n", "1"}, commands);
  Process one = Host(1, {"-n", "1"}, commands);
  zero.ExpectExit(7, "rank 1 of 2 ");
  EXPECT_THAT(zero.output(), HasSubstr("on host 1"));
  one.ExpectExit(7, "  | it broke\n");
}

TEST_F(AitRunHosts, WhenALauncherIsKilledTheOthersEnd) {
  for (const int victim : {0, 1}) {
    Process zero = Host(0, {"-n", "1"}, {"print", "ready", "sleep", "0"});
    Process one = Host(1, {"-n", "1"}, {"print", "ready", "sleep", "0"});
    zero.ReadUntil("[0] ready");
    one.ReadUntil("[1] ready");
    Process& killed = victim == 0 ? zero : one;
    Process& other = victim == 0 ? one : zero;
    killed.Signal(SIGKILL);
    killed.ExpectExit(128 + SIGKILL);
    other.ExpectExit(125, "the launcher of host " + std::to_string(victim));
    EXPECT_TRUE(killed.GroupIsGone());
    EXPECT_TRUE(other.GroupIsGone());
  }
}

TEST_F(AitRunHosts, ASignalToEachLauncherIsOneSignal) {
  const std::vector<std::string> commands = {"catch", "15", "print", "ready", "sleep", "0"};
  Process zero = Host(0, {"-n", "1"}, commands);
  Process one = Host(1, {"-n", "1"}, commands);
  zero.ReadUntil("[0] ready");
  one.ReadUntil("[1] ready");
  zero.Signal(SIGTERM);
  one.Signal(SIGTERM);
  zero.ExpectExit(0, "caught 15");
  one.ExpectExit(0, "caught 15");
}

TEST_F(AitRunHosts, LogsAreOfTheRanksOfThisHost) {
  const TempDir folder;
  Process zero = Host(0, {"-n", "1", "--log-dir", folder / "a"}, {"print", "zero"});
  Process one = Host(1, {"-n", "1", "--log-dir", folder / "b"}, {"print", "one"});
  zero.ExpectExit(0);
  one.ExpectExit(0);
  EXPECT_EQ(access((folder / "a/rank-0.log").c_str(), R_OK), 0);
  EXPECT_EQ(access((folder / "b/rank-1.log").c_str(), R_OK), 0);
}

TEST(AitRunOptions, RefusesHostsThatCannotBe) {
  const auto refused = [](std::vector<std::string> options, const char* reason) {
    options.insert(options.begin(), {"run", "-n", "1"});
    options.push_back("true");
    Process::Spawn({.program = AIT_PROGRAM, .args = std::move(options)}).ExpectExit(2, reason);
  };
  refused({"--nodes", "0"}, "--nodes");
  refused({"--nodes", "2"}, "--nodes 2 needs --node-rank and --rendezvous");
  refused({"--nodes", "2", "--node-rank", "2", "--rendezvous", "a:1"}, "from 0 to 1");
  refused({"--nodes", "2", "--node-rank", "0", "--rendezvous", "head"}, "HOST:PORT is needed");
  refused({"--nodes", "2", "--node-rank", "0", "--rendezvous", ":1"}, "HOST:PORT is needed");
  refused({"--nodes", "2", "--node-rank", "0", "--rendezvous", "fd00::1:1"}, "HOST:PORT");
  refused({"--nodes", "2", "--node-rank", "0", "--rendezvous", "a:0"}, "1 to 65535");
  refused({"--rendezvous", "a:1"}, "--rendezvous needs --nodes");
}

TEST(AitRunOptions, VerboseAsksTheRanksForTheirDecisions) {
  Process::Spawn(
      {.program = AIT_PROGRAM,
       .args = {"run", "-n", "1", "--verbose", "--", AIT_TEST_PUPPET, "env", "AIT_DESCRIBE"}})
      .ExpectExit(0, "AIT_DESCRIBE=1");
}

}  // namespace
}  // namespace ait::testing
