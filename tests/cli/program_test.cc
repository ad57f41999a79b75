// SPDX-License-Identifier: Apache-2.0
// The `ait` program from outside: help, version, subcommands that are not there, `ait topo`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Exit Ait(std::vector<std::string> args) {
  return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(args)}).Wait();
}

TEST(Program, SaysItsVersion) {
  const Exit exit = Ait({"--version"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, ::testing::MatchesRegex("ait [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Program, HelpNamesEverySubcommand) {
  for (const char* word : {"--help", "-h", "help"}) {
    const Exit exit = Ait({word});
    EXPECT_EQ(exit.code, 0);
    EXPECT_THAT(exit.output, HasSubstr("\n  run "));
    EXPECT_THAT(exit.output, HasSubstr("\n  topo "));
  }
}

TEST(Program, WithoutSubcommandShowsHelpAndFails) {
  const Exit exit = Ait({});
  EXPECT_EQ(exit.code, 2);
  EXPECT_THAT(exit.output, HasSubstr("Usage:"));
}

TEST(Program, ASubcommandThatIsNotThereGetsASuggestion) {
  Exit exit = Ait({"rnu"});
  EXPECT_EQ(exit.code, 2);
  EXPECT_THAT(exit.output, HasSubstr("did you mean 'run'?"));
  exit = Ait({"elephant"});
  EXPECT_EQ(exit.code, 2);
  EXPECT_THAT(exit.output, Not(HasSubstr("did you mean")));
}

TEST(Program, EverySubcommandHasHelpWithExamples) {
  for (const char* subcommand : {"pack", "run", "topo"}) {
    const Exit exit = Ait({subcommand, "--help"});
    EXPECT_EQ(exit.code, 0);
    EXPECT_THAT(exit.output, HasSubstr("Examples:\n  ait " + std::string(subcommand)));
  }
}

TEST(Topo, PrintsMachineBudgetAndLayout) {
  const Exit exit = Ait({"topo", "-n", "2"});
  EXPECT_EQ(exit.code, 0);
  for (const char* part : {"machine\n", "this process\n", "2 ranks", "\n  rank 1: CPUs "}) {
    EXPECT_THAT(exit.output, HasSubstr(part));
  }
}

TEST(Topo, RefusesWrongArguments) {
  for (const char* ranks : {"two", "0", "-1", "99999", "1.5", ""}) {
    const Exit exit = Ait({"topo", "-n", ranks});
    EXPECT_EQ(exit.code, 2);
    EXPECT_THAT(exit.output, HasSubstr("ait topo: option -n cannot be '" + std::string(ranks) +
                                       "': give a whole number from 1 to 4096\n"));
  }
  Exit exit = Ait({"topo", "--no-such-option"});
  EXPECT_EQ(exit.code, 2);
  EXPECT_THAT(exit.output, HasSubstr("'no-such-option' does not exist"));
  exit = Ait({"topo", "argument"});
  EXPECT_EQ(exit.code, 2);
}

TEST(Topo, CountsInEnglish) { EXPECT_THAT(Ait({"topo"}).output, HasSubstr("\n1 rank, sharing ")); }

}  // namespace
}  // namespace ait::testing
