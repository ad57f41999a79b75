// SPDX-License-Identifier: Apache-2.0
// The `ait` program from outside: help, version, subcommands that are not there, `ait topo`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ait/topology/budget.h"
#include "ait/topology/devices.h"
#include "ait/topology/machine.h"
#include "ait/topology/rank_layout.h"
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

TEST(Topo, ShowsTheLayoutOfEachPolicy) {
  const Exit exit = Ait({"topo", "--policy", "all", "--cores", "1"});
  EXPECT_EQ(exit.code, 0);
  for (const char* part : {"\n1 rank, sharing nothing, compact\n  rank 0: CPUs ",
                           "\n1 rank, sharing nothing, scatter\n", "\n  limit of locked memory: ",
                           "\n  swap available: ", "\n  memory limit: ", "  GPU"}) {
    EXPECT_THAT(exit.output, HasSubstr(part));
  }
}

TEST(Topo, JsonHasWhatTheTextHas) {
  const Exit exit = Ait({"topo", "--json", "-n", "2", "--policy", "scatter"});
  EXPECT_EQ(exit.code, 0);
  const auto json = nlohmann::json::parse(exit.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << exit.output;
  const Machine machine = ReadMachine().value();
  EXPECT_EQ(json["machine"]["cpus"], machine.online.ToString());
  ASSERT_EQ(json["machine"]["nodes"].size(), machine.nodes.size());
  EXPECT_EQ(json["machine"]["nodes"][0]["distances"], machine.nodes[0].distances);
  EXPECT_TRUE(json["machine"]["nodes"][0].contains("huge_pages"));
  EXPECT_EQ(json["process"]["affinity"]["value"], ReadBudget()->affinity.value.ToString());
  ASSERT_EQ(json["layouts"].size(), 1u);
  EXPECT_EQ(json["layouts"][0]["policy"], "scatter");
  ASSERT_EQ(json["layouts"][0]["ranks"].size(), 2u);
  for (const auto& rank : json["layouts"][0]["ranks"]) {
    const auto layout = ParseRankLayout(rank["environment"].get<std::string>());
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(rank["cpus"], layout->cpus.ToString());
    EXPECT_EQ(rank["loaders"], layout->loaders.ToString());
    EXPECT_EQ(rank["memory_node"].is_null(), !layout->memory_node.has_value());
  }
}

TEST(Topo, RefusesLayoutsThatCannotBe) {
  Exit exit = Ait({"topo", "--policy", "close"});
  EXPECT_EQ(exit.code, 2);
  EXPECT_THAT(exit.output,
              HasSubstr("--policy cannot be 'close': give compact, scatter, gpu or all"));
  exit = Ait({"topo", "--cores", "60000"});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("need 60000 cores"));
  if (ReadDevices().gpus.empty()) {
    exit = Ait({"topo", "--policy", "gpu"});
    EXPECT_EQ(exit.code, 1);
    EXPECT_THAT(exit.output, HasSubstr("no GPU to lay ranks out by"));
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
