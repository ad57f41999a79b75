// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/replacement_file_internal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::internal::ReplacementFile;
using ::ait::testing::Process;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

Status Replace(const std::string& path, std::string_view text) {
  const Bytes size(static_cast<std::int64_t>(text.size()));
  AIT_ASSIGN_OR_RETURN(ReplacementFile file, ReplacementFile::Create(path, size));
  AIT_RETURN_IF_ERROR(file.Write(AsBytes(text.substr(0, 2))));
  AIT_RETURN_IF_ERROR(file.Write(AsBytes(text.substr(2))));
  return file.Commit();
}

int FilesIn(const TempDir& dir) {
  const std::filesystem::directory_iterator files(dir.path());
  return static_cast<int>(std::distance(begin(files), end(files)));
}

TEST(ReplacementFile, CommitMakesAndReplaces) {
  const TempDir dir;
  EXPECT_OK(Replace(dir / "f", "first one, longer"));
  EXPECT_EQ(Contents(dir / "f"), "first one, longer");
  EXPECT_OK(Replace(dir / "f", "second"));
  EXPECT_EQ(Contents(dir / "f"), "second");
  EXPECT_EQ(FilesIn(dir), 1);
}

TEST(ReplacementFile, OldFileStaysUntilCommitAndForeverWithoutIt) {
  const TempDir dir;
  ASSERT_OK(Replace(dir / "f", "old"));
  {
    ASSERT_OK_AND_ASSIGN(ReplacementFile file, ReplacementFile::Create(dir / "f", Bytes(3)));
    EXPECT_OK(file.Write(AsBytes("new")));
    EXPECT_EQ(Contents(dir / "f"), "old");
    EXPECT_EQ(FilesIn(dir), 2);
  }
  EXPECT_EQ(Contents(dir / "f"), "old");
  EXPECT_EQ(FilesIn(dir), 1);
}

TEST(ReplacementFile, BytesMustAddUp) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(ReplacementFile file, ReplacementFile::Create(dir / "f", Bytes(3)));
  EXPECT_THAT(file.Commit(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("0 of 3")));
  EXPECT_THAT(file.Write(AsBytes("four")), StatusIs(StatusCode::kOutOfRange));
  EXPECT_OK(file.Write(AsBytes("abc")));
  EXPECT_OK(file.Commit());
  EXPECT_THAT(file.Commit(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Write(AsBytes("")), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(ReplacementFile::Create(dir / "g", Bytes(-1)),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(ReplacementFile, EmptyFilesWork) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(ReplacementFile file, ReplacementFile::Create(dir / "f", Bytes(0)));
  EXPECT_OK(file.Commit());
  EXPECT_EQ(std::filesystem::file_size(dir / "f"), 0u);
}

TEST(ReplacementFile, MissingFolderIsNamed) {
  const TempDir dir;
  EXPECT_THAT(Replace(dir / "gone/f", "text"),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone/f.partial")));
}

TEST(ReplacementFile, NoRoomIsSaidBeforeAnythingIsWritten) {
  const TempDir dir;
  ASSERT_OK(Replace(dir / "f", "old"));
  // An exbibyte fits no disk.
  EXPECT_THAT(
      ReplacementFile::Create(dir / "f", Bytes(std::int64_t{1} << 60)),
      StatusIs(StatusCode::kResourceExhausted,
               AllOf(HasSubstr("1152921504606846976 bytes are needed"), HasSubstr("free in"))));
  EXPECT_EQ(Contents(dir / "f"), "old");
  EXPECT_EQ(FilesIn(dir), 1);
}

TEST(ReplacementFile, TwoWritersOfOnePathAreRefused) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(ReplacementFile first, ReplacementFile::Create(dir / "f", Bytes(1)));
  EXPECT_THAT(ReplacementFile::Create(dir / "f", Bytes(1)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("somebody else is writing")));
  ReplacementFile moved = std::move(first);
  EXPECT_OK(moved.Write(AsBytes("1")));
  EXPECT_OK(moved.Commit());
  EXPECT_OK(Replace(dir / "f", "after"));
}

TEST(ReplacementFile, ASymbolicLinkInTheWayIsNotFollowed) {
  const TempDir dir;
  std::ofstream(dir / "victim") << "untouched";
  std::filesystem::create_symlink(dir / "victim", dir / "f.partial");
  EXPECT_FALSE(Replace(dir / "f", "text").ok());
  EXPECT_EQ(Contents(dir / "victim"), "untouched");
}

TEST(ReplacementFile, KilledInTheMiddleLeavesTheOldFileAndTheNextSaveCleansUp) {
  const TempDir dir;
  ASSERT_OK(Replace(dir / "f", "old"));
  auto saver = Process::Spawn({.program = AIT_TEST_SAVER, .args = {"half", dir / "f", "1000"}});
  saver.ReadUntil("half");
  saver.Signal(SIGKILL);
  saver.Wait();
  EXPECT_EQ(Contents(dir / "f"), "old");
  EXPECT_TRUE(std::filesystem::exists(dir / "f.partial"));
  ASSERT_OK(Replace(dir / "f", "new"));
  EXPECT_EQ(Contents(dir / "f"), "new");
  EXPECT_EQ(FilesIn(dir), 1);
}

}  // namespace
}  // namespace ait
