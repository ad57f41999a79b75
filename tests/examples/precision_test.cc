// SPDX-License-Identifier: Apache-2.0
// examples/05-precision from outside: a line for every mode, with the bytes that its formula says.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ait/data/pack.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::TempDir;

class PrecisionExample : public ::testing::Test {
 protected:
  PrecisionExample() {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 2000; ++i) text << "A sample is a window of tokens. ";
    text.close();
    EXPECT_OK(PackText({folder_ / "text"}, {.directory = folder_ / "corpus"}));
  }

  Process Run(std::vector<std::string> args) {
    args.insert(args.end(), {"--size", "tiny", "--data", folder_ / "corpus"});
    return Process::Spawn(
        {.program = AIT_PRECISION, .args = args, .timeout = std::chrono::seconds(240)});
  }

  TempDir folder_;
};

/// The numbers of a line of the table that begins with a mode.
std::vector<double> NumbersOf(const std::string& table, const std::string& mode) {
  std::istringstream lines(table);
  std::vector<double> numbers;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(mode + " ")) continue;
    std::istringstream words(line.substr(mode.size()));
    for (double number; words >> number;) numbers.push_back(number);
  }
  return numbers;
}

TEST_F(PrecisionExample, HasALineForEveryModeThatLearnsInItsBytes) {
  Process run = Run({"--steps", "60"});
  run.ExpectExit(0, "fp16 + fp32 master");
  const std::string table = run.output();
  // Bytes of parameters, gradients, masters and states.
  const std::map<std::string, std::vector<double>> bytes = {{"fp32", {4, 4, 0, 8}},
                                                            {"bf16 autocast", {4, 4, 0, 8}},
                                                            {"bf16 + fp32 master", {2, 4, 4, 8}},
                                                            {"bf16 + remainder", {2, 4, 2, 8}},
                                                            {"bf16 + Kahan", {2, 4, 2, 8}},
                                                            {"bf16 stochastic", {2, 4, 0, 8}},
                                                            {"bf16 pure", {2, 4, 0, 8}},
                                                            {"fp16 + fp32 master", {2, 4, 4, 8}}};
  for (const auto& [mode, expected] : bytes) {
    const std::vector<double> numbers = NumbersOf(table, mode);
    ASSERT_EQ(numbers.size(), 7u) << mode << "\n" << table;
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_GE(numbers[i], expected[i]) << mode;
      EXPECT_LE(numbers[i], expected[i] * 1.1) << mode << ": more is padding of a tiny model";
    }
    EXPECT_GT(numbers[5], 0) << mode;
    EXPECT_LT(numbers[6], 3) << mode << " has learned something: at first it is " << std::log(256);
  }
  // The same bits by another way.
  EXPECT_EQ(NumbersOf(table, "bf16 + remainder").back(),
            NumbersOf(table, "bf16 + fp32 master").back());
}

TEST_F(PrecisionExample, ExplainsWhatItDoesNotUnderstand) {
  Run({"--stesp", "3"}).ExpectExit(1, "usage: precision");
  Run({"--steps", "3"}).ExpectExit(1, "--steps is 3; it must be 10 or more");
}

}  // namespace
}  // namespace ait
