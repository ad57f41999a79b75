// SPDX-License-Identifier: Apache-2.0
#include "ait/data/durable_file.h"

#include <gtest/gtest.h>

#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::NamesIn;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(DurableFile, HasItsNameOnlyAfterCommit) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
  ASSERT_OK(file.Append(BytesOf("hello ")));
  ASSERT_OK(file.Append(BytesOf("world")));
  ASSERT_OK(file.Overwrite(0, BytesOf("H")));
  EXPECT_EQ(file.size_bytes(), 11);
  EXPECT_FALSE(std::filesystem::exists(directory / "a"));
  ASSERT_OK(file.Commit());
  EXPECT_THAT(NamesIn(directory.path()), ElementsAre("a"));
  EXPECT_EQ(ReadBytes(directory / "a"), "Hello world");
}

TEST(DurableFile, LeavesNothingWithoutCommit) {
  const TempDir directory;
  {
    ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
    ASSERT_OK(file.Append(BytesOf("hello")));
    ASSERT_OK_AND_ASSIGN(DurableFile other, DurableFile::Create(directory / "b"));
    other = std::move(file);
  }
  EXPECT_THAT(NamesIn(directory.path()), IsEmpty());
}

TEST(DurableFile, ReplacesTheOldFileAtOnce) {
  const TempDir directory;
  ASSERT_OK(WriteFileDurably(directory / "a", "old"));
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
  ASSERT_OK(file.Append(BytesOf("new")));
  EXPECT_EQ(ReadBytes(directory / "a"), "old");
  ASSERT_OK(file.Commit());
  EXPECT_EQ(ReadBytes(directory / "a"), "new");
}

TEST(DurableFile, PassesByATemporaryNameThatADeadProcessLeft) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(DurableFile first, DurableFile::Create(directory / "a"));
  ASSERT_OK_AND_ASSIGN(DurableFile second, DurableFile::Create(directory / "a"));
  ASSERT_OK(first.Append(BytesOf("1")));
  ASSERT_OK(second.Append(BytesOf("2")));
  ASSERT_OK(second.Commit());
  ASSERT_OK(first.Commit());
  EXPECT_EQ(ReadBytes(directory / "a"), "1");
}

TEST(DurableFile, SaysWhyItCannotBeMade) {
  const TempDir directory;
  EXPECT_THAT(DurableFile::Create(directory / "gone/a"),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone/a")));
  std::filesystem::create_directory(directory / "taken");
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "taken"));
  EXPECT_THAT(file.Commit(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("taken")));
}

TEST(DurableFile, RefusesToOverwriteBeyondItsEnd) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
  ASSERT_OK(file.Append(BytesOf("abc")));
  EXPECT_THAT(file.Overwrite(2, BytesOf("xx")), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(file.Overwrite(-1, BytesOf("x")), StatusIs(StatusCode::kOutOfRange));
}

TEST(DurableFile, IsClosedAfterCommit) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
  ASSERT_OK(file.Commit());
  EXPECT_THAT(file.Append(BytesOf("x")), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Commit(), StatusIs(StatusCode::kFailedPrecondition));
}

TEST(MakeDirectoryDurably, MakesWhatIsMissing) {
  const TempDir directory;
  ASSERT_OK(MakeDirectoryDurably(directory / "a/b/c"));
  EXPECT_TRUE(std::filesystem::is_directory(directory / "a/b/c"));
  EXPECT_OK(MakeDirectoryDurably(directory / "a/b/c"));
  EXPECT_OK(MakeDirectoryDurably(directory / "a/b/d/"));
  EXPECT_TRUE(std::filesystem::is_directory(directory / "a/b/d"));
  EXPECT_OK(MakeDirectoryDurably("/"));
  EXPECT_OK(MakeDirectoryDurably("."));
}

TEST(MakeDirectoryDurably, SaysWhyItCannot) {
  const TempDir directory;
  ASSERT_OK(WriteFileDurably(directory / "file", "x"));
  EXPECT_THAT(MakeDirectoryDurably(directory / "file"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("file is not a directory")));
  EXPECT_THAT(MakeDirectoryDurably(directory / "file/below"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("file is not a directory")));
  EXPECT_THAT(MakeDirectoryDurably(""), StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace ait
