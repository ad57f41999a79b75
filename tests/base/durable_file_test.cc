// SPDX-License-Identifier: Apache-2.0
#include "ait/base/durable_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> NamesIn(const TempDir& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(DurableFile, HasItsNameOnlyAfterCommit) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
  ASSERT_OK(file.Append(BytesOf("hello ")));
  ASSERT_OK(file.Append(BytesOf("world")));
  ASSERT_OK(file.Overwrite(0, BytesOf("H")));
  EXPECT_EQ(file.size_bytes(), 11);
  EXPECT_THAT(NamesIn(directory), ElementsAre("a.partial"));
  ASSERT_OK(file.Commit());
  EXPECT_THAT(NamesIn(directory), ElementsAre("a"));
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
  EXPECT_THAT(NamesIn(directory), IsEmpty());
}

TEST(DurableFile, ReplacesTheOldFileAtOnce) {
  const TempDir directory;
  ASSERT_OK(WriteFileDurably(directory / "a", "old and longer"));
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
  ASSERT_OK(file.Append(BytesOf("new")));
  EXPECT_EQ(ReadBytes(directory / "a"), "old and longer");
  ASSERT_OK(file.Commit());
  EXPECT_EQ(ReadBytes(directory / "a"), "new");
}

TEST(DurableFile, SpaceThatWasReservedAndNotUsedIsGivenBack) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
  ASSERT_OK(file.Reserve(Bytes(0)));
  ASSERT_OK(file.Reserve(KiB(64)));
  ASSERT_OK(file.Append(BytesOf("short")));
  ASSERT_OK(file.Commit());
  EXPECT_EQ(ReadBytes(directory / "a"), "short");
}

TEST(DurableFile, NoRoomIsSaidBeforeAnythingIsWritten) {
  const TempDir directory;
  ASSERT_OK(WriteFileDurably(directory / "a", "old"));
  {
    ASSERT_OK_AND_ASSIGN(DurableFile file, DurableFile::Create(directory / "a"));
    EXPECT_THAT(
        file.Reserve(Bytes(std::int64_t{1} << 60)),  // an exbibyte fits no disk
        StatusIs(StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("1152921504606846976 bytes are needed"), HasSubstr("free in"))));
  }
  EXPECT_THAT(NamesIn(directory), ElementsAre("a"));
  EXPECT_EQ(ReadBytes(directory / "a"), "old");
}

TEST(DurableFile, ASecondWriterIsRefused) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(DurableFile first, DurableFile::Create(directory / "a"));
  EXPECT_THAT(DurableFile::Create(directory / "a"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("somebody else is writing")));
  DurableFile moved = std::move(first);
  ASSERT_OK(moved.Commit());
  EXPECT_OK(WriteFileDurably(directory / "a", "after"));
}

TEST(DurableFile, ASymbolicLinkInTheWayIsNotFollowed) {
  const TempDir directory;
  std::ofstream(directory / "victim") << "untouched";
  std::filesystem::create_symlink(directory / "victim", directory / "a.partial");
  EXPECT_FALSE(WriteFileDurably(directory / "a", "text").ok());
  EXPECT_EQ(ReadBytes(directory / "victim"), "untouched");
}

TEST(DurableFile, KilledInTheMiddleLeavesTheOldFileAndTheNextWriterCleansUp) {
  const TempDir directory;
  ASSERT_OK(WriteFileDurably(directory / "a", "old"));
  auto writer = Process::Spawn({.program = AIT_TEST_WRITER, .args = {directory / "a"}});
  writer.ReadUntil("half");
  writer.Signal(SIGKILL);
  writer.Wait();
  EXPECT_EQ(ReadBytes(directory / "a"), "old");
  EXPECT_THAT(NamesIn(directory), ElementsAre("a", "a.partial"));
  ASSERT_OK(WriteFileDurably(directory / "a", "new"));
  EXPECT_THAT(NamesIn(directory), ElementsAre("a"));
  EXPECT_EQ(ReadBytes(directory / "a"), "new");
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
  EXPECT_THAT(file.Reserve(Bytes(1)), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Commit(), StatusIs(StatusCode::kFailedPrecondition));
}

// For as long as it lives, files are opened with the rights of a user that is not root.
class WithoutRoot {
 public:
  WithoutRoot() {
    if (user_ == 0) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~WithoutRoot() {
    if (user_ == 0) {
      EXPECT_EQ(seteuid(0), 0);
    }
  }

 private:
  const uid_t user_ = geteuid();
};

TEST(DurableFile, AnErrorAfterTheRenameSaysThatTheFileIsReplaced) {
  const TempDir directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0733), 0);
  const std::string folder = directory / "not-readable";  // then it cannot be synced
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0333), 0);
  {
    const WithoutRoot rights;
    EXPECT_THAT(
        WriteFileDurably(folder + "/a", "new"),
        StatusIs(StatusCode::kPermissionDenied,
                 AllOf(HasSubstr("not-readable/a is replaced, but may not be after a crash"),
                       HasSubstr("cannot open directory"))));
  }
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  EXPECT_EQ(ReadBytes(folder + "/a"), "new");
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
