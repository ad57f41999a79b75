// SPDX-License-Identifier: Apache-2.0
// `ait run` from outside. What the launcher behind it does is tested in tests/launch.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "ait/topology/devices.h"
#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// `ait run OPTIONS -- puppet COMMANDS`.
Process AitRun(std::vector<std::string> options, std::vector<std::string> commands,
               std::string input = "") {
  options.insert(options.begin(), "run");
  options.insert(options.end(), {"--", AIT_TEST_PUPPET});
  options.insert(options.end(), commands.begin(), commands.end());
  return Process::Spawn(
      {.program = AIT_PROGRAM, .args = std::move(options), .input = std::move(input)});
}

pid_t PidAfter(std::string_view word, const std::string& text) {
  const std::size_t found = text.find(word);
  EXPECT_NE(found, std::string::npos) << "no '" << word << "' in: " << text;
  return found == std::string::npos ? -1 : std::atoi(text.c_str() + found + word.size());
}

TEST(AitRun, PrefixesLinesAndPrintsTheDivision) {
  Process run = AitRun({"-n", "2"}, {"env", "RANK"});
  run.ExpectExit(0);
  EXPECT_THAT(run.standard_output(), HasSubstr("[0] RANK=0\n"));
  EXPECT_THAT(run.standard_output(), HasSubstr("[1] RANK=1\n"));
  EXPECT_THAT(run.standard_error(), HasSubstr("ait run: 2 ranks, port "));
  EXPECT_THAT(run.standard_error(), HasSubstr("CPU"));
}

TEST(AitRun, OneRankOrNoPrefixIsPassedThrough) {
  Process one = AitRun({"-n", "1", "--quiet"}, {"raw", "no\r newline"});
  one.ExpectExit(0);
  EXPECT_EQ(one.output(), "no\r newline");
  Process two = AitRun({"-n", "2", "--no-prefix", "-q"}, {"print", "same"});
  two.ExpectExit(0);
  EXPECT_EQ(two.output(), "same\nsame\n");
}

TEST(AitRun, TakesOptionsOfTheProgramForItself) {
  Process run = Process::Spawn({.program = AIT_PROGRAM,
                                .args = {"run", "-n", "1", "-q", AIT_TEST_PUPPET, "args", "-n", "9",
                                         "--", "--help", "a b", "$HOME; exit 3"}});
  run.ExpectExit(0);
  EXPECT_EQ(run.output(), "[-n]\n[9]\n[--]\n[--help]\n[a b]\n[$HOME; exit 3]\n");
}

TEST(AitRun, RankZeroReadsStandardInput) {
  Process run = AitRun({"-n", "2", "-q"}, {"copy", "print", "end"}, "typed\n");
  run.ExpectExit(0);
  EXPECT_THAT(run.output(), HasSubstr("[0] typed\n[0] end\n"));
  EXPECT_THAT(run.output(), Not(HasSubstr("[1] typed")));
}

TEST(AitRun, GivesNoOtherDescriptorToTheRanks) {
  Process run = Process::Spawn({.program = AIT_PROGRAM,
                                .args = {"run", "-n", "2", "-q", "--", AIT_TEST_PUPPET, "fds"},
                                .descriptors = {{7, STDERR_FILENO}}});
  run.ExpectExit(0);
  EXPECT_THAT(run.output(), HasSubstr("[0] fds 0 1 2 3\n"));
  EXPECT_THAT(run.output(), HasSubstr("[1] fds 0 1 2\n"));
}

TEST(AitRun, SetsThreadsAndLeavesRanksUnbound) {
  Process run = AitRun({"-n", "2", "--threads", "3", "--no-bind"}, {"env", "OMP_NUM_THREADS"});
  run.ExpectExit(0, "[1] OMP_NUM_THREADS=3\n");
  EXPECT_THAT(run.output(), HasSubstr("3 threads each, not bound"));
}

TEST(AitRun, BindsAsTheLayoutSays) {
  for (const char* layout : {"compact", "scatter"}) {
    Process run =
        AitRun({"-n", "1", "--bind", layout, "--cores", "1"}, {"cpus", "env", "AIT_LAYOUT"});
    run.ExpectExit(0, "AIT_LAYOUT=cpus=");
    EXPECT_THAT(run.standard_error(), HasSubstr("; CPUs by rank: "));
    EXPECT_THAT(run.standard_error(), HasSubstr("; memory "));
  }
  Process none = AitRun({"-n", "1", "--bind", "none"}, {"env", "AIT_LAYOUT"});
  none.ExpectExit(0, "AIT_LAYOUT is unset\n");
  EXPECT_THAT(none.output(), HasSubstr("not bound"));
}

TEST(AitRun, RanksHaveTheMemoryPolicyThatItTellsOf) {
  std::ifstream maps("/proc/self/numa_maps");
  std::string first;
  if (!std::getline(maps, first)) GTEST_SKIP() << "this kernel has no /proc/self/numa_maps";
  Process run = Process::Spawn(
      {.program = AIT_PROGRAM, .args = {"run", "-n", "1", "--", "cat", "/proc/self/numa_maps"}});
  run.ExpectExit(0);
  const std::string& told = run.standard_error();
  if (const std::size_t at = told.find("; memory of node "); at != std::string::npos) {
    const int node = std::atoi(told.c_str() + at + 17);
    EXPECT_THAT(run.standard_output(), HasSubstr(" prefer:" + std::to_string(node) + " "));
  } else {
    EXPECT_THAT(told, HasSubstr("; memory by first touch: "));
    EXPECT_THAT(run.standard_output(), Not(HasSubstr(" prefer:")));
  }
}

TEST(AitRun, RefusesLayoutsThatCannotBe) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--bind", "close"}, "option --bind cannot be 'close': give compact, scatter, gpu or none"},
      {{"--bind", "scatter", "--no-bind"}, "--no-bind and --bind scatter contradict each other"},
      {{"--cores", "-1"}, "option --cores cannot be '-1'"},
      {{"--cores", "2", "--bind", "none"}, "--cores needs ranks that are bound"},
  };
  for (const auto& [options, message] : cases) {
    std::vector<std::string> all = {"-n", "1"};
    all.insert(all.end(), options.begin(), options.end());
    AitRun(all, {"print", "never"}).ExpectExit(2, message);
  }
  AitRun({"-n", "1", "--cores", "60000"}, {"print", "never"})
      .ExpectExit(125, "1 ranks of 60000 cores each need 60000 cores");
  if (ReadDevices().gpus.empty()) {
    AitRun({"-n", "1", "--bind", "gpu"}, {"print", "never"}).ExpectExit(2, "no GPU to lay ranks");
  }
}

TEST(AitRun, EndsWithTheCodeAndTheLastLinesOfTheFirstFailingRank) {
  Process run =
      AitRun({"-n", "2"}, {"if", "1", "error", "it broke", "if", "1", "exit", "7", "sleep", "0"});
  run.ExpectExit(7, "ait run: rank 1 of 2 ");
  EXPECT_THAT(run.standard_error(), HasSubstr("exited with code 7"));
  EXPECT_THAT(run.standard_error(), HasSubstr("  | it broke\n"));
  EXPECT_TRUE(run.GroupIsGone());
}

TEST(AitRun, ASignalBecomes128AndItsNumber) {
  Process run = AitRun({"-n", "2"}, {"if", "0", "raise", "9", "sleep", "0"});
  run.ExpectExit(137, "rank 0 of 2 ");
  EXPECT_THAT(run.output(), HasSubstr("signal 9 (Killed)"));
  EXPECT_THAT(run.output(), HasSubstr("dmesg"));
}

TEST(AitRun, KillsARankThatIgnoresTermAfterTheGrace) {
  Process run =
      AitRun({"-n", "2", "--grace", "0.2"}, {"if", "0", "ignore", "15", "if", "1", "sleep", "100",
                                             "if", "1", "exit", "3", "child", "sleep", "0"});
  run.ExpectExit(3);
  EXPECT_TRUE(IsGone(PidAfter("[0] child ", run.output()), std::chrono::seconds(0)));
}

TEST(AitRun, TimeOutGives124) {
  AitRun({"-n", "1", "--timeout", "0.2"}, {"sleep", "0"}).ExpectExit(124, "time-out of 0.2 s");
}

TEST(AitRun, PassesTermAndInterruptOn) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Process run =
        AitRun({"-n", "2"}, {"catch", std::to_string(signal), "print", "ready", "sleep", "0"});
    run.ReadUntil("[0] ready");
    run.ReadUntil("[1] ready");
    run.Signal(signal);
    run.ExpectExit(0, "[1] caught");
  }
}

TEST(AitRun, TermEndsTheRanksAndWhatTheyStarted) {
  Process run = AitRun({"-n", "2"}, {"child", "print", "ready", "sleep", "0"});
  run.ReadUntil("[0] ready");
  run.ReadUntil("[1] ready");
  run.Signal(SIGTERM);
  run.ExpectExit(128 + SIGTERM, "stopped by signal 15");
  EXPECT_TRUE(IsGone(PidAfter("[0] child ", run.output()), std::chrono::seconds(0)));
  EXPECT_TRUE(IsGone(PidAfter("[1] child ", run.output()), std::chrono::seconds(0)));
}

TEST(AitRun, ASecondInterruptKills) {
  Process run = AitRun({"-n", "1", "--grace", "3600"},
                       {"ignore", "2", "ignore", "15", "print", "ready", "sleep", "0"});
  run.ReadUntil("ready");
  run.Signal(SIGINT);
  run.Signal(SIGTERM);
  run.ExpectExit(128 + SIGKILL);
}

TEST(AitRun, WhenItIsKilledRanksAndTheirChildrenAreKilled) {
  Process run = AitRun({"-n", "2"}, {"stubborn", "ignore", "15", "print", "ready", "sleep", "0"});
  run.ReadUntil("[0] ready");
  const std::string text = run.ReadUntil("[1] ready");
  run.Signal(SIGKILL);
  run.ExpectExit(128 + SIGKILL);
  for (const char* word : {"[0] child ", "[1] child "}) {
    EXPECT_TRUE(IsGone(PidAfter(word, text))) << word;
  }
}

TEST(AitRun, AClosedStandardOutputEndsTheRun) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Process run = Process::Spawn(
      {.program = AIT_PROGRAM,
       .args = {"run", "-n", "2", "--", AIT_TEST_PUPPET, "print", "ready", "sleep", "0"},
       .descriptors = {{1, ends[1]}}});
  close(ends[1]);
  close(ends[0]);
  run.ExpectExit(128 + SIGPIPE);
}

// A shell or another program that shares the pipe may have made it non-blocking.
TEST(AitRun, LosesNothingIfStandardOutputIsNonBlocking) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  std::string text;  // lines, all of them different
  for (int line = 0; text.size() < 3'000'000; ++line) text += std::to_string(line) + "\n";
  Process run = Process::Spawn({.program = AIT_PROGRAM,
                                .args = {"run", "-n", "1", "-q", "--", AIT_TEST_PUPPET, "copy"},
                                .input = text,
                                .descriptors = {{1, ends[1]}}});
  close(ends[1]);
  std::string received;
  char block[4096];
  for (ssize_t n = 0; (n = read(ends[0], block, sizeof(block))) > 0;) {
    received.append(block, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  run.ExpectExit(0);
  EXPECT_TRUE(received == text) << received.size() << " of " << text.size() << " bytes";
}

TEST(AitRun, SaysOnceThatStandardOutputCannotBeWritten) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  Process run = Process::Spawn({.program = AIT_PROGRAM,
                                .args = {"run", "-n", "2", "-q", "--", AIT_TEST_PUPPET, "print",
                                         "a", "sleep", "20", "print", "b"},
                                .descriptors = {{1, full}}});
  close(full);
  run.ExpectExit(0);
  EXPECT_EQ(run.standard_error(),
            "ait run: cannot write to standard output: No space left on device; "
            "the rest of it is lost\n");
}

TEST(AitRun, MakesNoLogsForARunThatIsRefused) {
  const TempDir folder;
  AitRun({"-n", "5000", "--log-dir", folder / "logs"}, {}).ExpectExit(2, "4096");
  Process::Spawn(
      {.program = AIT_PROGRAM,
       .args = {"run", "-n", "3", "--log-dir", folder / "logs", "--", "no-such-program"}})
      .ExpectExit(127);
  EXPECT_NE(access((folder / "logs").c_str(), F_OK), 0);
}

TEST(AitRun, RefusesAVariableForThreadsThatIsNoNumber) {
  Process::Spawn({.program = AIT_PROGRAM,
                  .args = {"run", "-n", "1", "true"},
                  .environment = {{"OMP_NUM_THREADS", "abc"}}})
      .ExpectExit(2, "OMP_NUM_THREADS is \"abc\"");
}

TEST(AitRun, CountsInEnglish) {
  EXPECT_THAT(AitRun({"-n", "1", "--threads", "1"}, {}).Wait().output,
              HasSubstr("ait run: 1 rank, port "));
}

TEST(AitRun, KeepsLogsOfEachRank) {
  const TempDir folder;
  AitRun({"-n", "2", "--log-dir", folder / "logs"}, {"env", "RANK"}).ExpectExit(0);
  std::ifstream log(folder / "logs/rank-1.log");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(log), {}), "RANK=1\n");
}

TEST(AitRun, StartsSixtyFourRanks) {
  Process run = AitRun({"-n", "64"}, {"env", "RANK"});
  run.ExpectExit(0);
  for (int rank = 0; rank < 64; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_THAT(run.standard_output(), HasSubstr("[" + number + "] RANK=" + number + "\n"));
  }
}

TEST(AitRun, AProgramThatCannotRunHasItsOwnCode) {
  const TempDir folder;
  std::ofstream(folder / "text") << "not a program\n";
  const auto run = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"run", "-n", "2"});
    return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(args)});
  };
  run({"no-such-program"}).ExpectExit(127, "ait run: program no-such-program is not in PATH");
  run({"./no-such-program"}).ExpectExit(127, "does not exist");
  run({folder / "text"}).ExpectExit(126, "is not an executable file");
}

TEST(AitRun, WrongUsageIsCode2) {
  const auto run = [](std::vector<std::string> args) {
    args.insert(args.begin(), "run");
    return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(args)});
  };
  run({}).ExpectExit(2, "how many ranks");
  run({"-n", "2"}).ExpectExit(2, "no program");
  run({"true"}).ExpectExit(2, "how many ranks");
  run({"-n", "two", "true"})
      .ExpectExit(2, "ait run: option -n cannot be 'two': give a whole number from 1 to 4096\n");
  run({"-n", "2x", "true"}).ExpectExit(2, "-n cannot be '2x'");
  run({"-n", "0", "true"}).ExpectExit(2, "-n cannot be '0'");
  run({"-n", "99999999999", "true"}).ExpectExit(2, "-n cannot be '99999999999'");
  run({"-n", "2", "--threads", "0", "true"}).ExpectExit(2, "--threads cannot be '0'");
  run({"-n", "2", "--grace", "-1", "true"}).ExpectExit(2, "--grace cannot be '-1'");
  run({"-n", "2", "--timeout", "0", "true"})
      .ExpectExit(2, "--timeout cannot be '0': give seconds, more than 0\n");
  run({"-n", "2", "--timeout", "nan", "true"}).ExpectExit(2, "--timeout cannot be 'nan'");
  run({"-n", "2", "--log-dir", "", "true"}).ExpectExit(2, "no folder after --log-dir");
  run({"-n", "2", "--colour", "true"}).ExpectExit(2, "'colour' does not exist");
}

}  // namespace
}  // namespace ait::testing
