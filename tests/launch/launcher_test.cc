// SPDX-License-Identifier: Apache-2.0
#include "ait/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "launch/plan_internal.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::IsGone;
using ::testing::Not;
using testing::StatusIs;
using testing::TempDir;

// Keeps what the ranks write; `on_text` may react to it.
class Collector final : public RankOutput {
 public:
  void Write(Rank rank, RankStream stream, std::string_view text) override {
    if (text.empty()) ++ended;
    auto& of_rank = texts[rank];
    of_rank[static_cast<std::size_t>(stream)] += text;
    if (on_text) on_text(of_rank[static_cast<std::size_t>(stream)]);
  }
  std::string Output(int rank) { return texts[Rank(rank)][0]; }
  std::string Errors(int rank) { return texts[Rank(rank)][1]; }

  std::map<Rank, std::array<std::string, 2>> texts;
  std::function<void(std::string_view)> on_text;
  int ended = 0;  // streams
};

class LauncherTest : public ::testing::Test {
 protected:
  // Options to run the puppet with these commands.
  LaunchOptions Puppet(int world_size, std::vector<std::string> commands) {
    LaunchOptions options = {.command = {AIT_TEST_PUPPET},
                             .world_size = WorldSize(world_size),
                             .timeout = 60s,
                             .grace = 200ms,
                             .output = &collector_};
    options.command.insert(options.command.end(), commands.begin(), commands.end());
    return options;
  }

  LaunchResult Run(LaunchOptions options) {
    auto launcher = Launcher::Create(std::move(options));
    EXPECT_OK(launcher);
    if (!launcher.ok()) return {};
    auto result = launcher->Run();
    EXPECT_OK(result);
    for (const RankExit& exit : result.ok() ? result->ranks : std::vector<RankExit>()) {
      EXPECT_TRUE(IsGone(exit.pid, 0s));
    }
    return result.ok() ? *std::move(result) : LaunchResult();
  }

  pid_t PidAfter(std::string_view word, const std::string& text) {
    const std::size_t found = text.find(word);
    EXPECT_NE(found, std::string::npos) << text;
    return found == std::string::npos ? -1 : std::atoi(text.c_str() + found + word.size());
  }

  Collector collector_;
};

TEST_F(LauncherTest, GivesEveryRankItsPlace) {
  const LaunchResult result =
      Run(Puppet(3, {"env", "RANK", "env", "WORLD_SIZE", "env", "LOCAL_RANK", "env",
                     "LOCAL_WORLD_SIZE", "env", "MASTER_ADDR"}));
  EXPECT_OK(result.status);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.first_failure, std::nullopt);
  ASSERT_EQ(result.ranks.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(collector_.Output(rank), "RANK=" + number + "\nWORLD_SIZE=3\nLOCAL_RANK=" + number +
                                           "\nLOCAL_WORLD_SIZE=3\nMASTER_ADDR=127.0.0.1\n");
  }
  EXPECT_EQ(collector_.ended, 6);
}

TEST_F(LauncherTest, TheRanksMeetAtTheSocketOfRankZero) {
  const LaunchResult result =
      Run(Puppet(2, {"fds", "env", "AIT_LISTEN_FD", "if", "1", "connect", "if", "0", "listen"}));
  EXPECT_OK(result.status);
  EXPECT_EQ(collector_.Output(0), "fds 0 1 2 3\nAIT_LISTEN_FD=3\nconnected\n");
  EXPECT_EQ(collector_.Output(1), "fds 0 1 2\nAIT_LISTEN_FD is unset\n");
}

TEST_F(LauncherTest, AFreePortIsRankZerosToBind) {
  LaunchOptions options = Puppet(1, {"env", "AIT_LISTEN_FD", "fds", "bind"});
  options.port = RankPort::kFree;
  EXPECT_OK(Run(std::move(options)).status);
  EXPECT_EQ(collector_.Output(0), "AIT_LISTEN_FD is unset\nfds 0 1 2\nbound\n");
  EXPECT_EQ(Run(Puppet(1, {"bind"})).exit_code, 96) << "the port is held if it is not free";
}

TEST_F(LauncherTest, TheVariableForThreadsIsANumberOrAList) {
  const auto threads_of = [&](const char* variable) -> StatusOr<int> {
    setenv("OMP_NUM_THREADS", variable, 1);
    const auto launcher = Launcher::Create(Puppet(2, {}));
    unsetenv("OMP_NUM_THREADS");
    AIT_RETURN_IF_ERROR(launcher.status());
    return launcher->plan().ranks[1].threads;
  };
  for (const auto& [variable, threads] :
       {std::pair{"3", 3}, {"4,2", 4}, {" 2 , 1", 2}, {"2147483647", 2147483647}}) {
    ASSERT_OK_AND_ASSIGN(const int planned, threads_of(variable));
    EXPECT_EQ(planned, threads) << variable;
  }
  for (const char* variable : {"abc", "0", "-2", "4,", ",4", "4,two", "4,0", "2147483648", "3.5"}) {
    EXPECT_THAT(threads_of(variable),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr(StrCat("OMP_NUM_THREADS is \"", variable, "\""))));
  }
}

TEST_F(LauncherTest, TakesTheVariablesOfAnotherLaunchOutAndAddsTheCallers) {
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  setenv("GROUP_RANK", "4", 1);
  setenv("RANK", "17", 1);
  LaunchOptions options = Puppet(1, {"env", "TORCHELASTIC_USE_AGENT_STORE", "env", "GROUP_RANK",
                                     "env", "RANK", "env", "COLOUR", "env", "WORLD_SIZE"});
  options.environment = {{"COLOUR", "blue = $HOME"}, {"WORLD_SIZE", "9"}};
  Run(std::move(options));
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  unsetenv("GROUP_RANK");
  unsetenv("RANK");
  EXPECT_EQ(collector_.Output(0),
            "TORCHELASTIC_USE_AGENT_STORE is unset\nGROUP_RANK is unset\nRANK=0\n"
            "COLOUR=blue = $HOME\nWORLD_SIZE=1\n");
}

TEST_F(LauncherTest, PassesArgumentsAsTheyAre) {
  const std::vector<std::string> args = {"a b", "$HOME", ";",  "'",      "\"",
                                         "*",   "",      "\n", "`date`", "&&"};
  std::vector<std::string> commands = {"args"};
  commands.insert(commands.end(), args.begin(), args.end());
  Run(Puppet(1, commands));
  std::string expected;
  for (const std::string& arg : args) expected += "[" + arg + "]\n";
  EXPECT_EQ(collector_.Output(0), expected);
}

TEST_F(LauncherTest, DividesTheCpusAndTellsTheRanks) {
  auto launcher = Launcher::Create(Puppet(1, {"cpus", "env", "OMP_NUM_THREADS"}));
  ASSERT_OK(launcher);
  const RankPlan plan = launcher->plan().ranks.front();
  EXPECT_GE(plan.threads, 1);
  EXPECT_FALSE(plan.cpus.empty());
  ASSERT_OK(launcher->Run());
  EXPECT_EQ(collector_.Output(0),
            StrCat("cpus ", plan.cpus.size(), "\nOMP_NUM_THREADS=", plan.threads, "\n"));
}

TEST_F(LauncherTest, RanksLearnTheirLayout) {
  setenv("AIT_LAYOUT", "that of another launch", 1);
  auto launcher = Launcher::Create(Puppet(2, {"env", "AIT_LAYOUT"}));
  ASSERT_OK(launcher);
  const LaunchPlan plan = launcher->plan();
  ASSERT_OK(launcher->Run());
  LaunchOptions unbound = Puppet(1, {"env", "AIT_LAYOUT"});
  unbound.binding = CpuBinding::kNone;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(plan.ranks[rank].layout.has_value());
    EXPECT_EQ(plan.ranks[rank].layout->cpus, plan.ranks[rank].cpus);
    EXPECT_EQ(collector_.Output(static_cast<int>(rank)),
              StrCat("AIT_LAYOUT=", ToText(*plan.ranks[rank].layout), "\n"));
    EXPECT_NE(plan.ranks[rank].memory_node.has_value(), !plan.first_touch.empty())
        << "preferred, or why not";
  }
  EXPECT_EQ(Run(unbound).exit_code, 0);
  EXPECT_THAT(collector_.Output(0), ::testing::EndsWith("AIT_LAYOUT is unset\n"));
  unsetenv("AIT_LAYOUT");
}

TEST_F(LauncherTest, ThreadsThatComputeStayOffTheOtherCpusOfTheirRank) {
  using ::testing::Contains;
  using ::testing::StartsWith;
  LaunchOptions options = Puppet(1, {"print", "never"});
  LaunchPlan plan;
  const auto environment = [&](const char* layout) {
    plan.ranks = {RankPlan{.layout = ParseRankLayout(layout).value()}};
    return internal::MakeEnvironment(options, plan, 0);
  };
  constexpr const char* kServed =
      "cpus=0-2,8-10;compute=0-2;communication=10;loaders=8-9;threads=3;loader_threads=1";
  const auto places = environment(kServed);
  EXPECT_THAT(places, Contains("OMP_PLACES={0,1,2}"));
  EXPECT_THAT(places, Contains("OMP_PROC_BIND=true"));
  const auto none =
      environment("cpus=0-2;compute=0-2;communication=0-2;loaders=0-2;threads=3;loader_threads=1");
  EXPECT_THAT(none, Not(Contains(StartsWith("OMP_P")))) << "there is nothing to stay off";
  setenv("AIT_LAYOUT", kServed, 1);  // this is a rank of another launch
  setenv("OMP_PLACES", "{0,1,2}", 1);
  setenv("OMP_PROC_BIND", "true", 1);
  EXPECT_THAT(
      environment("cpus=1-2;compute=1;communication=2;loaders=2;threads=1;loader_threads=1"),
      Contains("OMP_PLACES={1}"));
  unsetenv("AIT_LAYOUT");
  unsetenv("OMP_PLACES");
  unsetenv("OMP_PROC_BIND");
  for (const char* chosen : {"OMP_PLACES=cores", "OMP_PROC_BIND=false", "GOMP_CPU_AFFINITY=0"}) {
    const std::string_view text = chosen;
    const std::size_t equals = text.find('=');
    options.environment = {{std::string(text.substr(0, equals)), text.substr(equals + 1).data()}};
    const auto kept = environment(kServed);
    EXPECT_THAT(kept, Contains(chosen));
    EXPECT_THAT(kept, Not(Contains("OMP_PLACES={0,1,2}")));
  }
}

TEST_F(LauncherTest, RefusesALayoutThatTheMachineCannotGive) {
  LaunchOptions options = Puppet(2, {"print", "never"});
  options.layout.cores = 10'000;
  EXPECT_THAT(Launcher::Create(options),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("need 20000 cores")));
  options.layout = {.service_cores = 10'000};
  EXPECT_THAT(Launcher::Create(options),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("leave none to compute")));
}

TEST_F(LauncherTest, BindsOnlyIfAskedAndKeepsChosenThreads) {
  LaunchOptions options = Puppet(2, {"env", "OMP_NUM_THREADS"});
  options.binding = CpuBinding::kNone;
  setenv("OMP_NUM_THREADS", "5", 1);
  auto of_environment = Launcher::Create(options);
  options.threads = 3;
  auto of_options = Launcher::Create(options);
  unsetenv("OMP_NUM_THREADS");
  ASSERT_OK(of_environment);
  ASSERT_OK(of_options);
  EXPECT_TRUE(of_options->plan().ranks[1].cpus.empty());
  EXPECT_EQ(of_environment->plan().ranks[1].threads, 5);
  ASSERT_OK(of_options->Run());
  EXPECT_EQ(collector_.Output(1), "OMP_NUM_THREADS=3\n");
}

TEST_F(LauncherTest, TheFirstFailingRankDecides) {
  const LaunchResult result =
      Run(Puppet(3, {"if", "1", "error", "it broke", "if", "1", "exit", "7", "sleep", "0"}));
  EXPECT_THAT(result.status, StatusIs(StatusCode::kAborted, HasSubstr("rank 1 of 3")));
  EXPECT_THAT(Message(result.status), HasSubstr("exited with code 7"));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.first_failure, Rank(1));
  EXPECT_EQ(result.ranks[1].last_errors, "it broke\n");
  EXPECT_FALSE(result.ranks[1].stopped);
  EXPECT_EQ(result.ranks[0].signal, SIGTERM);
  EXPECT_EQ(result.ranks[2].code, 128 + SIGTERM);
  EXPECT_TRUE(result.ranks[2].stopped);
}

TEST_F(LauncherTest, AnEarlyGoodEndIsNoFailure) {
  const LaunchResult result = Run(Puppet(2, {"if", "0", "exit", "0", "sleep", "100"}));
  EXPECT_OK(result.status);
  EXPECT_EQ(result.exit_code, 0);
}

TEST_F(LauncherTest, ASignalIsAFailureWithItsName) {
  const LaunchResult result = Run(Puppet(2, {"if", "1", "raise", "10", "sleep", "0"}));
  EXPECT_THAT(Message(result.status), HasSubstr("rank 1 of 2"));
  EXPECT_THAT(Message(result.status), HasSubstr("signal 10 (User defined signal 1)"));
  EXPECT_EQ(result.exit_code, 128 + SIGUSR1);
}

TEST_F(LauncherTest, KillsARankThatIgnoresTermAfterTheGrace) {
  const LaunchResult result =
      Run(Puppet(2, {"if", "0", "ignore", "15", "print", "ready", "if", "1", "sleep", "100", "if",
                     "1", "exit", "3", "sleep", "0"}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.ranks[0].signal, SIGKILL);
}

TEST_F(LauncherTest, ARankMayUseTheGraceToEndInOrder) {
  LaunchOptions options = Puppet(2, {"if", "0", "catch", "15", "print", "ready", "if", "1", "sleep",
                                     "100", "if", "1", "exit", "3", "sleep", "0"});
  options.grace = 30s;
  const LaunchResult result = Run(std::move(options));
  EXPECT_EQ(result.ranks[0].code, 0);
  EXPECT_THAT(collector_.Output(0), HasSubstr("caught 15"));
  EXPECT_LT(result.wall_time, 30s);
}

TEST_F(LauncherTest, EndsWhatARankLeavesBehind) {
  const LaunchResult result = Run(Puppet(1, {"child", "stubborn", "exit", "0"}));
  EXPECT_OK(result.status);
  const std::string text = collector_.Output(0);
  EXPECT_TRUE(IsGone(PidAfter("child ", text), 0s));
  EXPECT_TRUE(IsGone(PidAfter("child ", text.substr(text.find('\n'))), 0s));
}

TEST_F(LauncherTest, StopsAfterTheTimeOut) {
  LaunchOptions options = Puppet(2, {"sleep", "0"});
  options.timeout = 100ms;
  const LaunchResult result = Run(std::move(options));
  EXPECT_THAT(result.status, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("0.1 s")));
  EXPECT_EQ(result.exit_code, 124);
}

TEST_F(LauncherTest, StopPassesTheSignalOnFirst) {
  auto launcher = Launcher::Create(Puppet(1, {"catch", "2", "print", "ready", "sleep", "0"}));
  ASSERT_OK(launcher);
  collector_.on_text = [&](std::string_view text) {
    if (text == "ready\n") launcher->Stop(SIGINT);
  };
  ASSERT_OK_AND_ASSIGN(const LaunchResult result, launcher->Run());
  EXPECT_OK(result.status) << "it ended with 0";
  EXPECT_EQ(collector_.Output(0), "ready\ncaught 02\n");
}

TEST_F(LauncherTest, StopClimbsTheLadderByItself) {
  auto launcher =
      Launcher::Create(Puppet(1, {"ignore", "2", "ignore", "15", "print", "ready", "sleep", "0"}));
  ASSERT_OK(launcher);
  collector_.on_text = [&](std::string_view text) {
    if (text == "ready\n") launcher->Stop(SIGINT);
  };
  ASSERT_OK_AND_ASSIGN(const LaunchResult result, launcher->Run());
  EXPECT_THAT(result.status, StatusIs(StatusCode::kCancelled, HasSubstr("signal 2 (Interrupt)")));
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
}

TEST_F(LauncherTest, ASecondStopKills) {
  LaunchOptions options = Puppet(1, {"ignore", "2", "print", "ready", "sleep", "0"});
  options.grace = 1h;
  auto launcher = Launcher::Create(options);
  ASSERT_OK(launcher);
  collector_.on_text = [&](std::string_view text) {
    if (text != "ready\n") return;
    launcher->Stop(SIGINT);
    launcher->Stop(SIGINT);
  };
  ASSERT_OK_AND_ASSIGN(const LaunchResult result, launcher->Run());
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
}

TEST_F(LauncherTest, StopBeforeRunAndFromAnotherThread) {
  auto launcher = Launcher::Create(Puppet(2, {"sleep", "0"}));
  ASSERT_OK(launcher);
  std::thread([&] { launcher->Stop(SIGTERM); }).join();
  ASSERT_OK_AND_ASSIGN(const LaunchResult result, launcher->Run());
  EXPECT_THAT(result.status, StatusIs(StatusCode::kCancelled));
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
}

TEST_F(LauncherTest, PassesMuchOutputOnWhole) {
  std::vector<std::string> commands;
  const std::string line(10'000, 'x');
  for (int i = 0; i < 100; ++i) commands.insert(commands.end(), {"print", line});
  Run(Puppet(2, commands));
  EXPECT_EQ(collector_.Output(0).size(), 100u * 10'001);
  EXPECT_EQ(collector_.Output(1), collector_.Output(0));
}

TEST_F(LauncherTest, RankZeroMayHaveATerminal) {
  LaunchOptions options = Puppet(2, {"tty", "raw", "\rstep 1\rstep 2", "error", "line"});
  options.terminal = RankTerminal::kOutputAndError;
  EXPECT_OK(Run(options).status);
  EXPECT_EQ(collector_.Output(0), "tty 0 1 1\n\rstep 1\rstep 2");
  EXPECT_EQ(collector_.Errors(0), "line\n");
  EXPECT_EQ(collector_.Output(1), "tty 0 0 0\n\rstep 1\rstep 2");
}

TEST_F(LauncherTest, StartsManyRanks) {
  const LaunchResult result = Run(Puppet(64, {"env", "RANK"}));
  EXPECT_OK(result.status);
  EXPECT_EQ(collector_.Output(63), "RANK=63\n");
}

TEST_F(LauncherTest, TwoLaunchersRunAtOnce) {
  Collector other;
  LaunchOptions options =
      Puppet(2, {"env", "AIT_RUN_ID", "if", "1", "connect", "if", "0", "listen"});
  auto first = Launcher::Create(options);
  options.output = &other;
  auto second = Launcher::Create(options);
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_NE(first->plan().port, second->plan().port);
  EXPECT_NE(first->plan().run_id, second->plan().run_id);
  StatusOr<LaunchResult> second_result;
  std::thread thread([&] { second_result = second->Run(); });
  const auto first_result = first->Run();
  thread.join();
  ASSERT_OK(first_result);
  ASSERT_OK(second_result);
  EXPECT_OK(first_result->status);
  EXPECT_OK(second_result->status);
  EXPECT_EQ(other.Output(1), "AIT_RUN_ID=" + second->plan().run_id + "\n");
}

TEST_F(LauncherTest, RunsOnce) {
  auto launcher = Launcher::Create(Puppet(1, {"exit", "0"}));
  ASSERT_OK(launcher);
  ASSERT_OK(launcher->Run());
  EXPECT_THAT(launcher->Run(), StatusIs(StatusCode::kFailedPrecondition));
}

TEST_F(LauncherTest, RefusesWhatCannotBe) {
  EXPECT_THAT(Launcher::Create({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no program")));
  for (const int size : {0, -1, 4097}) {
    EXPECT_THAT(Launcher::Create({.command = {"true"}, .world_size = WorldSize(size)}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::to_string(size))));
  }
  EXPECT_THAT(Launcher::Create({.command = {"true"}, .threads = -2}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-2")));
  EXPECT_THAT(Launcher::Create({.command = {"true"}, .timeout = 0s}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("time-out")));
  EXPECT_THAT(Launcher::Create({.command = {"true"}, .terminal = RankTerminal::kError}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("terminal")));
}

TEST_F(LauncherTest, SaysWhatIsWrongWithTheProgram) {
  const TempDir folder;
  const std::string script = folder / "script";
  std::ofstream(script) << "echo no first line\n";
  EXPECT_THAT(Launcher::Create({.command = {folder / "gone"}}),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone does not exist")));
  EXPECT_THAT(Launcher::Create({.command = {"no-such-program-at-all"}}),
              StatusIs(StatusCode::kNotFound, HasSubstr("not in PATH")));
  EXPECT_THAT(Launcher::Create({.command = {script}}),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("not an executable file")));
  EXPECT_THAT(Launcher::Create({.command = {folder.path()}}),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("not an executable file")));

  chmod(script.c_str(), 0755);
  auto launcher = Launcher::Create({.command = {script}, .world_size = WorldSize(2)});
  ASSERT_OK(launcher);
  EXPECT_THAT(launcher->Run(), StatusIs(StatusCode::kPermissionDenied, HasSubstr("#!/bin/sh")));

  std::ofstream(script) << "#!/no/such/shell\n";
  launcher = Launcher::Create({.command = {script}});
  ASSERT_OK(launcher);
  EXPECT_THAT(launcher->Run(), StatusIs(StatusCode::kNotFound, HasSubstr("interpreter")));
}

TEST(Describe, SaysHowARankEnded) {
  EXPECT_EQ(Describe(RankExit{.code = 7}), "exited with code 7");
  EXPECT_EQ(Describe(RankExit{.code = 137, .signal = 9}), "was ended by signal 9 (Killed)");
}

}  // namespace
}  // namespace ait
