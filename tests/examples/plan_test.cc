// SPDX-License-Identifier: Apache-2.0
// examples/08-plan from outside: it keeps to its budget and to its prediction.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "ait/data/pack.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::TempDir;

class PlanExample : public ::testing::Test {
 protected:
  PlanExample() {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 2000; ++i) text << "A budget is kept, or it is refused. ";
    text.close();
    EXPECT_OK(PackText({folder_ / "text"}, {.directory = folder_ / "corpus"}));
  }

  Process Run(std::vector<std::string> args) {
    std::vector<std::string> all = {"run", "-n", "2", "--no-prefix", "--", AIT_PLAN};
    all.insert(all.end(), args.begin(), args.end());
    all.insert(all.end(), {"--size", "tiny", "--steps", "4", "--data", folder_ / "corpus"});
    return Process::Spawn(
        {.program = AIT_PROGRAM, .args = all, .timeout = std::chrono::seconds(240)});
  }

  TempDir folder_;
};

/// The error in percent of a line that begins with `part`.
double ErrorOf(const std::string& text, const std::string& part) {
  std::smatch match;
  const std::regex line("\n  " + part + " [^\n]* ([+-][0-9.]+) %");
  EXPECT_TRUE(std::regex_search(text, match, line)) << part << " in\n" << text;
  return match.empty() ? 1000 : std::stod(match[1]);
}

TEST_F(PlanExample, KeepsItsWordInEveryStage) {
  for (const char* stage : {"0", "2", "3"}) {
    Process run = Run({"--zero", stage, "--activations", "0.8"});
    run.ExpectExit(0, "segments recomputed");
    EXPECT_LE(std::abs(ErrorOf(run.output(), "model states")), 5) << run.output();
    EXPECT_LE(std::abs(ErrorOf(run.output(), "total")), 10) << run.output();
  }
}

TEST_F(PlanExample, RefusesABudgetThatCannotBeKept) {
  Run({"--activations", "0.01"}).ExpectExit(1, "is below the least that is possible");
}

TEST_F(PlanExample, ExplainsWhatItDoesNotUnderstand) {
  Run({"--zreo", "3"}).ExpectExit(1, "usage: plan");
  Run({"--zero", "4"}).ExpectExit(1, "--zero is 4; it must be 0, 1, 2 or 3");
}

}  // namespace
}  // namespace ait
