// SPDX-License-Identifier: Apache-2.0
// examples/04-zero from outside: every stage prints the same loss, and explains wrong input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "ait/data/pack.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::TempDir;
using ::testing::HasSubstr;

class ZeroExample : public ::testing::Test {
 protected:
  ZeroExample() {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 2000; ++i) text << "Each rank holds a part of the whole. ";
    text.close();
    EXPECT_OK(PackText({folder_ / "text"}, {.directory = folder_ / "corpus"}));
  }

  std::string Run(std::vector<std::string> words, int code = 0) {
    std::vector<std::string> args = {"run", "-n", "2", "--no-prefix", "--", AIT_ZERO};
    args.insert(args.end(), words.begin(), words.end());
    args.insert(args.end(), {"--data", folder_ / "corpus", "--size", "tiny", "--steps", "3"});
    const ait::testing::Exit exit =
        Process::Spawn({.program = AIT_PROGRAM, .args = args, .timeout = std::chrono::seconds(120)})
            .Wait();
    EXPECT_EQ(exit.code == 0, code == 0) << exit.output;
    return exit.output;
  }

  /// "loss 5.123456 after 3 steps"
  static std::string LossOf(const std::string& output) {
    const std::size_t at = output.find("loss ", output.find(" ranks: "));
    return at == std::string::npos ? "" : output.substr(at, output.find("steps", at) - at);
  }

  TempDir folder_;
};

TEST_F(ZeroExample, EveryStagePrintsTheSameLoss) {
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string expected = LossOf(Run({"--zero", "0", "--precision", precision}));
    EXPECT_THAT(expected, HasSubstr("after 3"));
    for (const char* stage : {"1", "2", "3"}) {
      EXPECT_EQ(LossOf(Run({"--zero", stage, "--precision", precision})), expected) << stage;
    }
  }
}

TEST_F(ZeroExample, StateInAFileGivesTheSameLoss) {
  const std::string memory = LossOf(Run({"--zero", "2"}));
  EXPECT_EQ(LossOf(Run({"--zero", "2", "--offload", folder_.path()})), memory);
}

TEST_F(ZeroExample, SaysWhatIsWrong) {
  EXPECT_THAT(Run({"--zero", "4"}, 1), HasSubstr("0, 1, 2 or 3"));
  EXPECT_THAT(Run({"--precision", "int4"}, 1), HasSubstr("bf16-remainder"));
  EXPECT_THAT(Run({"--shards", "2"}, 1), HasSubstr("usage: zero"));
}

}  // namespace
}  // namespace ait
