// SPDX-License-Identifier: Apache-2.0
#include "cli/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait::cli {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;
using testing::TempDir;

class Counter final : public RankOutput {
 public:
  void Write(Rank, RankStream, std::string_view text) override { bytes += text.size(); }
  std::size_t bytes = 0;
};

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LogFiles, KeepsBothStreamsOfEachRankAndPassesThemOn) {
  const TempDir folder;
  Counter next;
  LogFiles logs(&next);
  ASSERT_OK(logs.Open(folder / "a/b", 0, 2));
  logs.Write(Rank(0), RankStream::kOutput, "out\n");
  logs.Write(Rank(0), RankStream::kError, "error\n");
  logs.Write(Rank(1), RankStream::kOutput, "other");
  EXPECT_OK(logs.status());
  EXPECT_EQ(Read(folder / "a/b/rank-0.log"), "out\nerror\n");
  EXPECT_EQ(Read(folder / "a/b/rank-1.log"), "other");
  EXPECT_EQ(next.bytes, 15u);
}

TEST(LogFiles, SaysWhichFolderCannotBeMade) {
  EXPECT_THAT(LogFiles(nullptr).Open("/dev/null/logs", 0, 1),
              ::testing::ResultOf([](const Status& s) { return Message(s); },
                                  HasSubstr("cannot make the folder /dev/null/logs")));
}

TEST(LogFiles, AFullDiskIsReportedAndTheOutputStillPassedOn) {
  const TempDir folder;
  ASSERT_EQ(symlink("/dev/full", (folder / "rank-0.log").c_str()), 0);
  Counter next;
  LogFiles logs(&next);
  ASSERT_OK(logs.Open(folder.path(), 0, 1));
  logs.Write(Rank(0), RankStream::kOutput, "text");
  logs.Write(Rank(0), RankStream::kOutput, "text");
  EXPECT_THAT(logs.status(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("log of rank 0")));
  EXPECT_EQ(next.bytes, 8u);
}

}  // namespace
}  // namespace ait::cli
