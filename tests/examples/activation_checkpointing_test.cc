// SPDX-License-Identifier: Apache-2.0
// examples/07-activation-checkpointing from outside: what does not fit says so, and what fits gives
// the same loss.
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
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ActivationCheckpointingExample : public ::testing::Test {
 protected:
  ActivationCheckpointingExample() {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 2000; ++i) text << "What is not kept is computed again. ";
    text.close();
    EXPECT_OK(PackText({folder_ / "text"}, {.directory = folder_ / "corpus"}));
  }

  std::string Run(std::vector<std::string> args, int code = 0) {
    args.insert(args.end(), {"--data", folder_ / "corpus", "--steps", "1"});
    const ait::testing::Exit exit = Process::Spawn({.program = AIT_ACTIVATION_CHECKPOINTING,
                                                    .args = args,
                                                    .timeout = std::chrono::seconds(200)})
                                        .Wait();
    EXPECT_EQ(exit.code == 0, code == 0) << exit.output;
    return exit.output;
  }

  /// "loss 5.123456" of the line that begins with `name`.
  static std::string LossOf(const std::string& output, const std::string& name) {
    const std::size_t at = output.find("\n" + name + ": loss ");
    if (at == std::string::npos) return "";
    const std::size_t begin = output.find("loss ", at);
    return output.substr(begin, output.find(',', begin) - begin);
  }

  TempDir folder_;
};

TEST_F(ActivationCheckpointingExample, DoesNotFitThenDoes) {
  const std::string output = "\n" + Run({});
  EXPECT_THAT(output, AllOf(HasSubstr("plain: does not fit"), HasSubstr("limit(heap)"),
                            HasSubstr("24 blocks recomputed, 0.0 MiB kept")));
  EXPECT_EQ(LossOf(output, "plain"), "");
  EXPECT_NE(LossOf(output, "recomputed"), "");
  EXPECT_EQ(LossOf(output, "recomputed but products"), LossOf(output, "recomputed"));
}

TEST_F(ActivationCheckpointingExample, AllWaysGiveTheSameLoss) {
  const std::string output = "\n" + Run({"--layers", "6", "--mib", "1000"});
  EXPECT_THAT(output, Not(HasSubstr("does not fit")));
  EXPECT_NE(LossOf(output, "plain"), "");
  EXPECT_EQ(LossOf(output, "recomputed"), LossOf(output, "plain"));
  EXPECT_EQ(LossOf(output, "recomputed but products"), LossOf(output, "plain"));
  // Of a block: products of 3, 1, 4 and 1 times the width, for 1,024 tokens.
  EXPECT_THAT(output, HasSubstr("13.5 MiB kept a step"));
}

TEST_F(ActivationCheckpointingExample, SaysWhatIsWrong) {
  EXPECT_THAT(Run({"--budget", "2"}, 1), HasSubstr("usage: activation-checkpointing"));
  EXPECT_THAT(Run({"--mib", "0"}, 1), HasSubstr("limit"));
}

}  // namespace
}  // namespace ait
