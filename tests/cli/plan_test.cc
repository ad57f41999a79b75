// SPDX-License-Identifier: Apache-2.0
// `ait plan` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Exit Plan(std::vector<std::string> args) {
  args.insert(args.begin(), "plan");
  return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(args)}).Wait();
}

nlohmann::json JsonPlan(std::vector<std::string> args) {
  args.push_back("--json");
  return nlohmann::json::parse(Plan(std::move(args)).output);
}

TEST(Plan, SevenBillionTake84GB) {
  const Exit exit = Plan({"--params", "7B", "--precision", "fp16-pure", "--optimizer", "adam"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, ContainsRegex("parameters +14.00\n"));
  EXPECT_THAT(exit.output, ContainsRegex("gradients +14.00\n"));
  EXPECT_THAT(exit.output, ContainsRegex("states +56.00\n"));
  EXPECT_THAT(exit.output, ContainsRegex("total +84.00\n"));
}

TEST(Plan, ShowsEveryStageOverTheRanks) {
  const Exit exit = Plan({"--params", "7B", "--precision", "fp16-pure", "--ranks", "8"});
  EXPECT_THAT(exit.output, ContainsRegex("zero 0 +zero 1 +zero 2 +zero 3\n"));
  EXPECT_THAT(exit.output, ContainsRegex("model states +84.00 +35.00 +22.75 +10.50\n"));
  EXPECT_THAT(exit.output, HasSubstr("assumed to be 32 equal ones"));
  EXPECT_THAT(Plan({"--params", "7B", "--ranks", "8", "--zero", "2"}).output,
              Not(HasSubstr("zero 1")));
}

TEST(Plan, JsonHasTheSameInBytes) {
  const auto json = JsonPlan({"--params", "7B", "--precision", "bf16", "--ranks", "4", "--zero",
                              "1..2", "--ranks-per-host", "2", "--nodes-per-host", "2"});
  EXPECT_EQ(json["parameters"], 7'000'000'000);
  ASSERT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][0]["zero"], 1);
  EXPECT_EQ(json["stages"][0]["masters_bytes"], 7'000'000'000);
  EXPECT_EQ(json["stages"][1]["gradients_bytes"], 7'000'000'000);
  EXPECT_EQ(json["stages"][1]["host_bytes"].get<std::int64_t>(),
            2 * json["stages"][1]["total_bytes"].get<std::int64_t>());
  EXPECT_EQ(json["stages"][1]["node_bytes"], json["stages"][1]["total_bytes"]);
}

TEST(Plan, KnowsTheActivationsOfATransformer) {
  const std::vector<std::string> shape = {"--layers",      "24", "--hidden",   "2048",
                                          "--heads",       "16", "--sequence", "1024",
                                          "--micro-batch", "4"};
  const auto kept = JsonPlan(shape);
  std::vector<std::string> recomputed = shape;
  recomputed.insert(recomputed.end(), {"--recompute", "all"});
  const auto activations = [](const nlohmann::json& json) {
    const auto& stage = json["stages"][0];
    return stage["activations_bytes"].get<double>() + stage["working_bytes"].get<double>();
  };
  EXPECT_GT(activations(kept), 34.0 * 1024 * 4 * 2048 * 24);
  EXPECT_LT(activations(JsonPlan(recomputed)), 0.15 * activations(kept));
  // 12 h^2 + 13 h a layer, the positions, the last norm.
  EXPECT_EQ(kept["parameters"], 24 * (12 * 2048 * 2048 + 13 * 2048) + 1024 * 2048 + 2 * 2048);
}

TEST(Plan, SaysWhatWouldHelpWhereTheBudgetIsTooSmall) {
  const std::vector<std::string> args = {
      "--layers",      "24", "--hidden", "2048", "--heads", "16", "--sequence", "1024",
      "--micro-batch", "8",  "--ranks",  "8",    "--zero",  "1",  "--budget"};
  auto with = [&](const char* budget) {
    auto all = args;
    all.emplace_back(budget);
    return Plan(all);
  };
  EXPECT_EQ(with("80GB").code, 0);
  EXPECT_THAT(with("80GB").output, HasSubstr("fits"));
  const Exit small = with("12GB");
  EXPECT_EQ(small.code, 1);
  EXPECT_THAT(small.output, HasSubstr("too much"));
  EXPECT_THAT(small.output, HasSubstr("micro-batch 4 instead of 8, accumulating 2 micro-steps"));
  EXPECT_THAT(small.output, HasSubstr("activation checkpointing: recompute"));
  const Exit tiny = with("1MB");
  EXPECT_EQ(tiny.code, 1);
  EXPECT_THAT(tiny.output, HasSubstr("is below the least that is possible"));
  EXPECT_THAT(tiny.output, HasSubstr("of which the largest part is"));
}

TEST(Plan, RefusesWrongArguments) {
  const auto refuses = [](std::vector<std::string> args, const char* why) {
    const Exit exit = Plan(std::move(args));
    EXPECT_EQ(exit.code, 2);
    EXPECT_THAT(exit.output, HasSubstr(why));
  };
  refuses({}, "say how large the model is");
  refuses({"--params", "seven"}, "--params cannot be 'seven'");
  refuses({"--params", "0"}, "--params cannot be '0'");
  refuses({"--params", "7B", "--zero", "4"}, "--zero cannot be '4'");
  refuses({"--params", "7B", "--zero", "3..1"}, "--zero cannot be '3..1'");
  refuses({"--params", "7B", "--precision", "fp8"}, "no precision \"fp8\"");
  refuses({"--params", "7B", "--optimizer", "magic"}, "no optimizer \"magic\"");
  refuses({"--params", "7B", "--ranks", "0"}, "--ranks cannot be '0'");
  refuses({"--params", "7B", "--ranks", "2", "--ranks-per-host", "4"}, "more than the 2");
  refuses({"--params", "7B", "--budget", "-3GB"}, "--budget cannot be '-3GB'");
  refuses({"--layers", "4"}, "go together");
  refuses({"--layers", "4", "--hidden", "10", "--heads", "3", "--sequence", "8"}, "multiple of 3");
  refuses({"--params", "7B", "extra"}, "takes no argument extra");
  refuses({"--no-such-option"}, "does not exist");
}

TEST(Plan, HasHelpWithExamples) {
  const Exit exit = Plan({"--help"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, HasSubstr("Examples:\n  ait plan --params 7B"));
}

}  // namespace
}  // namespace ait::testing
