// SPDX-License-Identifier: Apache-2.0
// examples/01-one-process and examples/02-data-parallel from outside: one pass over the images
// teaches them, and a wrong folder is explained.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/process.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::TempDir;

/// In percent, from the output of an example; 0 if there is none.
double Accuracy(const std::string& output) {
  constexpr std::string_view kLabel = "test accuracy ";
  const std::size_t at = output.find(kLabel);
  return at == std::string::npos ? 0 : std::atof(output.c_str() + at + kLabel.size());
}

TEST(OneProcess, LearnsInOneEpoch) {
  Process run = Process::Spawn(
      {.program = AIT_ONE_PROCESS, .args = {"1"}, .timeout = std::chrono::minutes(4)});
  run.ExpectExit(0, "test accuracy ");
  EXPECT_GE(Accuracy(run.output()), 80) << run.output();
}

TEST(DataParallel, LearnsInOneEpochOnTwoRanks) {
  Process run = Process::Spawn({.program = AIT_PROGRAM,
                                .args = {"run", "-n", "2", "--", AIT_DATA_PARALLEL, "1"},
                                .timeout = std::chrono::minutes(4)});
  run.ExpectExit(0, "2 ranks: test accuracy ");
  EXPECT_GE(Accuracy(run.output()), 80) << run.output();
}

TEST(OneProcess, SaysThatTheImagesAreMissing) {
  const TempDir folder;
  Process::Spawn({.program = AIT_ONE_PROCESS, .args = {"1", folder.path()}})
      .ExpectExit(1, folder.path());
}

}  // namespace
}  // namespace ait
