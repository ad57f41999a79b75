// SPDX-License-Identifier: Apache-2.0
// `ait pack` from outside; what it does is tested in tests/data/pack_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class AitPack : public ::testing::Test {
 protected:
  AitPack() { std::ofstream(text_) << "Once upon a time\n"; }
  Exit Pack(std::vector<std::string> args) {
    args.insert(args.begin(), "pack");
    return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(args)}).Wait();
  }
  void ExpectWrongUsage(std::vector<std::string> args, const char* reason) {
    const Exit exit = Pack(std::move(args));
    EXPECT_EQ(exit.code, 2);
    EXPECT_THAT(exit.output, HasSubstr(reason));
  }
  const TempDir directory_;
  const std::string text_ = directory_ / "a, b.txt";  // a name with a comma and a blank
  const std::string out_ = directory_ / "corpus";
};

TEST_F(AitPack, PacksOnceAndThenIsUpToDate) {
  Exit exit = Pack({"text", text_, "--out", out_, "--shard-tokens", "10"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(
      exit.output,
      StartsWith(out_ + ": 18 tokens of a vocabulary of 256, 1 document, 2 shards; packed"));
  exit = Pack({"text", text_, "--out", out_, "--shard-tokens=10"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, HasSubstr("up to date"));
}

TEST_F(AitPack, ReplacesAnotherCorpusOnlyByForce) {
  EXPECT_EQ(Pack({"text", text_, "--out", out_}).code, 0);
  Exit exit = Pack({"text", text_, text_, "--out", out_});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("--force"));
  exit = Pack({"text", text_, text_, "--out", out_, "--force"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, HasSubstr("2 documents"));
}

TEST_F(AitPack, SaysWhatIsWrong) {
  ExpectWrongUsage({}, "must be 'text'");
  ExpectWrongUsage({"images", text_, "--out", out_}, "must be 'text'");
  ExpectWrongUsage({"text", "--out", out_}, "no files");
  ExpectWrongUsage({"text", text_}, "no --out");
  ExpectWrongUsage({"text", text_, "--out", ""}, "no --out");
  for (const char* tokens : {"many", "0", "-1", "10k", "9223372036854775808"}) {
    ExpectWrongUsage({"text", text_, "--out", out_, "--shard-tokens", tokens},
                     "option --shard-tokens cannot be '");
  }
  ExpectWrongUsage({"text", text_, "--to", out_}, "'to' does not exist");
  const Exit exit = Pack({"text", directory_ / "gone", "--out", out_});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("gone: No such file"));
}

}  // namespace
}  // namespace ait::testing
