// SPDX-License-Identifier: Apache-2.0
// Files that change while they are open.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/storage/local_storage.h"
#include "data/data_test_support.h"
#include "support/forbidden_calls.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ExpectInChild;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::HasSubstr;
using enum LocalEngine;

std::string RandomText(std::size_t size, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(random() >> 32);
  return text;
}

std::span<std::byte> BytesOf(std::string& text) { return std::as_writable_bytes(std::span(text)); }

// Looks at a file with every read.
StatusOr<std::unique_ptr<LocalStorage>> Files(LocalEngine engine) {
  return LocalStorage::Create({.engine = engine, .check_interval = std::chrono::milliseconds(0)});
}

// Looks at a file only where it must.
StatusOr<std::unique_ptr<LocalStorage>> RarelyChecked(LocalEngine engine) {
  return LocalStorage::Create({.engine = engine, .check_interval = std::chrono::hours(1)});
}

// The clock of file systems is coarse: it may not have moved since a file was made.
void LetClockMove() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(LocalChanges, AFileThatIsCutInsideAPageIsNeverZeros) {
  const TempDir directory;
  WriteBytes(directory / "file", RandomText(10'000));
  ASSERT_OK_AND_ASSIGN(const auto files, RarelyChecked(kMapped));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  std::vector<std::string> outs(10, std::string(50, '\0'));
  std::vector<ObjectRead> reads;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    reads.push_back({static_cast<std::int64_t>(9'000 + 60 * i), BytesOf(outs[i]), {}});
  }
  object->ReadMany(reads);
  for (const ObjectRead& read : reads) ASSERT_OK(read.status);
  std::filesystem::resize_file(directory / "file", 9'000);
  object->ReadMany(reads);
  for (const ObjectRead& read : reads) {
    EXPECT_THAT(read.status, StatusIs(StatusCode::kDataLoss, HasSubstr("shorter")));
  }
}

TEST(LocalChanges, AWriteThatPutsTheOldTimeBackIsFound) {
  const TempDir directory;
  const std::string path = directory / "file";
  WriteBytes(path, RandomText(200'000));
  ASSERT_OK_AND_ASSIGN(const auto files, Files(kPread));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(path));
  LetClockMove();
  const auto time = std::filesystem::last_write_time(path);
  std::fstream(path) << "another beginning";
  std::filesystem::last_write_time(path, time);
  std::string out(100, '\0');
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(object->ReadAt(5, BytesOf(out)),
                StatusIs(StatusCode::kAborted, HasSubstr("old time of change")));
  }
  EXPECT_NE(files->Stat(path)->version, object->info().version);
}

TEST(LocalChanges, LinksNamesAndPermissionsAreNoContents) {
  const TempDir directory;
  const std::string path = directory / "file", link = directory / "link";
  WriteBytes(path, RandomText(200'000));
  ASSERT_OK_AND_ASSIGN(const auto files, Files(kPread));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(path));
  std::string out(100, '\0');
  const auto read = [&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        std::string mine(100, '\0');
        EXPECT_OK(object->ReadAt(5, BytesOf(mine)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    LetClockMove();
  };
  read();
  std::filesystem::create_hard_link(path, link);
  read();
  std::filesystem::remove(link);
  read();
  ASSERT_EQ(::chmod(path.c_str(), 0400), 0);
  read();
  std::filesystem::rename(path, directory / "renamed");
  read();
  std::filesystem::rename(directory / "renamed", path);
  std::filesystem::remove(path);
  read();
}

TEST(LocalChanges, AFileThatIsReadAtOnceIsLookedAt) {
  const TempDir directory;
  WriteBytes(directory / "file", "the old bytes");
  ASSERT_OK_AND_ASSIGN(const auto files, RarelyChecked(kAutomatic));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  LetClockMove();
  WriteBytes(directory / "file", "the new bytes");
  EXPECT_THAT(ReadWhole(*object), StatusIs(StatusCode::kAborted));
}

TEST(LocalChanges, TheEndOfAStreamIsLookedAt) {
  const TempDir directory;
  const std::string text = RandomText(12'000'000);
  for (const int depth : {0, 4}) {
    WriteBytes(directory / "file", text);
    ASSERT_OK_AND_ASSIGN(const auto files, RarelyChecked(kNetwork));
    ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
    ASSERT_OK_AND_ASSIGN(const auto stream,
                         object->Stream({.length_bytes = 8'000'000, .depth = depth}));
    ASSERT_OK(stream->Next());
    LetClockMove();
    std::fstream(directory / "file") << "another beginning";
    Status last;
    for (int i = 0; i < 100 && last.ok(); ++i) last = stream->Next().status();
    EXPECT_THAT(last, StatusIs(StatusCode::kAborted, HasSubstr("written to")));
    EXPECT_THAT(stream->Next(), StatusIs(StatusCode::kAborted));
  }
}

TEST(LocalChanges, ARelativePathStaysWhereItLed) {
  const TempDir directory;
  std::filesystem::create_directory(directory / "other");
  WriteBytes(directory / "file", "the right bytes");
  WriteBytes(directory / "other/file", "those of another one");
  ExpectInChild({}, 0, [&] {
    std::filesystem::current_path(directory.path());
    const auto object = *(*Files(kPread))->Open("file");
    std::filesystem::current_path(directory / "other");
    const auto whole = ReadWhole(*object);
    EXPECT_OK(whole.status());
    EXPECT_TRUE(whole.ok() && whole->text() == "the right bytes");
    std::string out(3, '\0');
    EXPECT_OK(object->ReadAt(1, BytesOf(out)));
    EXPECT_EQ(object->info().url, "file");
  });
}

}  // namespace
}  // namespace ait
