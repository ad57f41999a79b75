// SPDX-License-Identifier: Apache-2.0
// `ait stage` from outside; what it does is tested in tests/data/cache/stage_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class AitStage : public ::testing::Test {
 protected:
  AitStage() {
    std::filesystem::create_directories(source_ + "/sub");
    std::ofstream(source_ + "/sub/a, b.tar") << std::string(10'000, 'a');
    std::ofstream(source_ + "/c.tar") << std::string(500, 'c');
  }
  Exit Stage(std::vector<std::string> args) {
    args.insert(args.begin(), "stage");
    return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(args)}).Wait();
  }
  void ExpectWrongUsage(std::vector<std::string> args, const char* reason) {
    const Exit exit = Stage(std::move(args));
    EXPECT_EQ(exit.code, 2);
    EXPECT_THAT(exit.output, HasSubstr(reason));
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  const TempDir directory_;
  const std::string source_ = directory_ / "source", out_ = directory_ / "out";
};

TEST_F(AitStage, CopiesOnceAndChecks) {
  Exit exit = Stage({source_, out_, "--dry-run"});
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, AllOf(StartsWith(out_ + ": 2 files, 10.5 kB, of which 0 were there"),
                                 HasSubstr("would copy 10.5 kB, free are")));
  EXPECT_FALSE(std::filesystem::exists(out_));
  exit = Stage({source_, out_, "-j", "2", "--part-size", "4K"});
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, AllOf(HasSubstr("; copied 10.5 kB in "), HasSubstr("B/s)"),
                                 HasSubstr("; read back 10.5 kB in ")));
  EXPECT_EQ(Read(out_ + "/sub/a, b.tar"), std::string(10'000, 'a'));
  EXPECT_EQ(Read(out_ + "/c.tar"), std::string(500, 'c'));
  exit = Stage({source_, out_, "--part-size", "4K"});
  EXPECT_THAT(exit.output,
              AllOf(HasSubstr("2 were there; copied 0 B"), HasSubstr("read back 0 B")));
  // The same size and other bytes: only reading back finds it.
  std::ofstream(out_ + "/c.tar") << std::string(500, 'x');
  exit = Stage({source_, out_, "--part-size", "4K", "--verify"});
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, HasSubstr("1 damaged part copied again"));
  EXPECT_EQ(Read(out_ + "/c.tar"), std::string(500, 'c'));
}

TEST_F(AitStage, SaysWhatIsWrong) {
  ExpectWrongUsage({}, "SRC and DIR");
  ExpectWrongUsage({source_}, "SRC and DIR");
  ExpectWrongUsage({source_, out_, "more"}, "SRC and DIR");
  ExpectWrongUsage({source_, out_, "-j", "0"}, "option --jobs cannot be '0'");
  ExpectWrongUsage({source_, out_, "--part-size", "many"}, "option --part-size");
  ExpectWrongUsage({source_, out_, "--to"}, "'to' does not exist");
  const Exit exit = Stage({directory_ / "gone", out_});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("gone"));
  EXPECT_THAT(Stage({"gopher://x/", out_}).output, HasSubstr("gopher"));
  EXPECT_THAT(Stage({"--help"}).output, HasSubstr("--dry-run"));
}

}  // namespace
}  // namespace ait::testing
