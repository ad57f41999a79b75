// SPDX-License-Identifier: Apache-2.0
#include "ait/data/cache/stage.h"

#include <gtest/gtest.h>
#include <sys/file.h>

#include <csignal>

#include "ait/data/storage/open_storage.h"
#include "data/cache/cache_test_support.h"
#include "data/data_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::ait::testing::FakeStorage;
using ::ait::testing::FileStorage;
using ::ait::testing::Process;
using ::ait::testing::RandomText;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::HasSubstr;

constexpr std::int64_t kPart = 4096;

class StageTest : public ::testing::Test {
 protected:
  StageTest() {
    for (int i = 0; i < 6; ++i) {
      Put(StrCat("s3://b/d/", i % 2 == 0 ? "" : "x/y/", "f", i), i * 5000);
    }
    Put("s3://b/d/a, b\xff%.tar", kPart);
    Put("s3://b/other", 10);
  }
  void Put(const std::string& url, std::size_t size, const std::string& version = "1") {
    texts_[url] = RandomText(size, ++seed_);
    source_.Put(url, texts_[url], version);
  }
  StatusOr<StageReport> Run(StageOptions options = {}) {
    options.directory = out_;
    options.part_bytes = kPart;
    source_.reads = 0;
    return Stage(source_, "s3://b/d/", options);
  }
  std::string PathOf(const std::string& url) const { return out_ + "/" + url.substr(9); }
  void ExpectAll() {
    for (const auto& [url, text] : texts_) {
      if (!url.starts_with("s3://b/d/")) continue;
      EXPECT_EQ(ReadBytes(PathOf(url)), text) << url;
    }
    EXPECT_FALSE(std::filesystem::exists(out_ + "/.ait-stage"));
    EXPECT_TRUE(std::filesystem::exists(out_ + "/ait-stage.json"));
  }

  FakeStorage source_;
  std::map<std::string, std::string> texts_;
  const TempDir directory_;
  const std::string out_ = directory_ / "deep/out";
  unsigned seed_ = 0;
};

constexpr std::int64_t kBytes = 15 * 5000 + kPart;
constexpr int kParts = 2 + 3 + 4 + 5 + 7 + 1;

TEST_F(StageTest, FilesAreThoseOfTheSourceAndASecondCallCopiesNothing) {
  std::vector<std::int64_t> done;
  ASSERT_OK_AND_ASSIGN(StageReport report, Run({.threads = 3, .progress = [&](const auto& now) {
                                                  done.push_back(now.bytes_done);
                                                  return OkStatus();
                                                }}));
  EXPECT_EQ(report.files, 7);
  EXPECT_EQ(report.bytes, kBytes);
  EXPECT_EQ(report.copied_bytes, kBytes);
  EXPECT_EQ(report.verified_bytes, kBytes);
  EXPECT_EQ(report.found_files, 0);
  EXPECT_EQ(report.damaged_parts, 0);
  EXPECT_EQ(source_.reads, kParts);
  EXPECT_EQ(done.size(), 2u * kParts);
  EXPECT_EQ(done.back(), kBytes);
  ExpectAll();
  ASSERT_OK_AND_ASSIGN(report, Run());
  EXPECT_EQ(report.found_files, 7);
  EXPECT_EQ(report.copied_bytes, 0);
  EXPECT_EQ(report.verified_bytes, 0);
  EXPECT_EQ(source_.reads, 0);
  ExpectAll();
}

TEST_F(StageTest, APlanChangesNothing) {
  ASSERT_OK_AND_ASSIGN(const StageReport report, Run({.action = StageAction::kPlan}));
  EXPECT_EQ(report.copied_bytes, kBytes);
  EXPECT_GT(report.free_bytes, 0);
  EXPECT_EQ(source_.reads, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "deep"));
}

TEST_F(StageTest, GoesOnAfterAnErrorWhereverItCame) {
  int reads = 0, calls = 0;
  for (; calls < 2 * kParts; ++calls) {
    source_.on_read = [this](const std::string&, std::int64_t) {
      return source_.reads > 2 ? UnavailableError("gone") : OkStatus();
    };
    const auto report = Run({.threads = 1});
    reads += source_.reads;
    if (report.ok()) break;
    EXPECT_THAT(report, StatusIs(StatusCode::kUnavailable));
    EXPECT_FALSE(std::filesystem::exists(out_ + "/ait-stage.json"));
    EXPECT_EQ(std::filesystem::exists(out_ + "/f2"), false);  // nothing has a name before its time
  }
  EXPECT_EQ(calls, (kParts - 1) / 2);
  EXPECT_LE(reads, kParts + calls);
  ExpectAll();
}

TEST_F(StageTest, DamageOfUnfinishedFilesIsFoundByReadingBack) {
  source_.on_read = [this](const std::string&, std::int64_t) {
    return source_.reads > kParts - 2 ? UnavailableError("gone") : OkStatus();
  };
  EXPECT_THAT(Run({.threads = 1}), StatusIs(StatusCode::kUnavailable));
  source_.on_read = nullptr;
  int damaged = 0;
  for (const auto& file : std::filesystem::directory_iterator(out_ + "/.ait-stage")) {
    std::string bytes = ReadBytes(file.path());
    if (file.path().extension() != ".data" || bytes.size() < 5000) continue;
    bytes[4999] ^= 1;
    WriteBytes(file.path(), bytes);
    ++damaged;
  }
  EXPECT_GT(damaged, 2);
  ASSERT_OK_AND_ASSIGN(const StageReport report, Run());
  EXPECT_GE(report.damaged_parts, damaged - 1);  // a part may have been missing anyway
  EXPECT_LE(report.damaged_parts, damaged);
  ExpectAll();
}

TEST_F(StageTest, DamageOfFinishedFilesIsFoundWhenAskedForAndRepaired) {
  ASSERT_OK(Run());
  std::string bytes = ReadBytes(PathOf("s3://b/d/x/y/f5"));
  bytes[10'000] ^= 4;
  WriteBytes(PathOf("s3://b/d/x/y/f5"), bytes);
  ASSERT_OK(Run());
  EXPECT_EQ(source_.reads, 0);
  ASSERT_OK_AND_ASSIGN(StageReport report, Run({.verify = StageVerification::kAll}));
  EXPECT_EQ(report.damaged_parts, 1);
  EXPECT_EQ(report.verified_bytes, kBytes);
  EXPECT_EQ(source_.reads, 1);
  ExpectAll();
  // A size that differs needs no reading.
  WriteBytes(PathOf("s3://b/d/f2"), "short");
  ASSERT_OK(Run());
  ExpectAll();
}

TEST_F(StageTest, ANewVersionReplacesTheOldFile) {
  ASSERT_OK(Run());
  Put("s3://b/d/f2", 10'000, "2");
  Put("s3://b/d/new", 7);
  ASSERT_OK_AND_ASSIGN(const StageReport report, Run());
  EXPECT_EQ(report.found_files, 6);
  EXPECT_EQ(report.copied_bytes, 10'007);
  ExpectAll();
  Put("s3://b/d/f2", 10'000, "");  // no version: nobody knows, so it is copied
  ASSERT_OK(Run());
  EXPECT_EQ(source_.reads, 3);
  ExpectAll();
}

TEST_F(StageTest, AnObjectThatChangesMeanwhileIsAnError) {
  source_.on_read = [this, first = true](const std::string&, std::int64_t) mutable {
    if (std::exchange(first, false)) Put("s3://b/d/x/y/f5", 25'000, "2");
    return OkStatus();
  };
  EXPECT_THAT(Run({.threads = 1}), StatusIs(StatusCode::kAborted, HasSubstr("changed")));
  source_.on_read = nullptr;
  ASSERT_OK(Run());
  ExpectAll();
}

TEST_F(StageTest, AnObjectThatIsOverwrittenWhileItIsCopiedIsAnErrorThoughNoReadSaysSo) {
  source_.hides_changes = true;
  source_.on_read = [this, reads = 0](const std::string& url, std::int64_t) mutable {
    if (url.ends_with("f5") && ++reads == 3) Put(url, 25'000, "2");
    return OkStatus();
  };
  EXPECT_THAT(Run({.threads = 1}),
              StatusIs(StatusCode::kAborted, HasSubstr("while it was copied")));
  EXPECT_FALSE(std::filesystem::exists(PathOf("s3://b/d/x/y/f5")));
  source_.on_read = nullptr;
  ASSERT_OK(Run());
  ExpectAll();
}

TEST_F(StageTest, SeveralObjectsAreOpenedAtOnce) {
  ait::testing::Meeting meeting(2);
  source_.on_open = [&, first = std::make_shared<std::atomic<int>>(0)](const std::string&) {
    if ((*first)++ < 2) {
      EXPECT_TRUE(meeting.Come());
    }
  };
  ASSERT_OK(Run({.threads = 4}));
  ExpectAll();
}

TEST_F(StageTest, WhatAnotherCallStagedStaysInTheManifest) {
  source_.Put("s3://b/more/t", texts_["s3://b/d/f2"]);
  source_.Put("s3://b/more/gone", "1");
  ASSERT_OK(Stage(source_, "s3://b/more/", {.directory = out_, .part_bytes = kPart}));
  std::filesystem::remove(out_ + "/gone");
  ASSERT_OK(Run());
  ExpectAll();
  EXPECT_THAT(ReadBytes(out_ + "/ait-stage.json"), ::testing::Not(HasSubstr("\"gone\"")));
  source_.reads = 0;
  FakeStorage one;
  one.Put("s3://b/more/t", texts_["s3://b/d/f2"]);
  ASSERT_OK_AND_ASSIGN(const StageReport report,
                       Stage(one, "s3://b/more/", {.directory = out_, .part_bytes = kPart}));
  EXPECT_EQ(report.found_files, 1);
  EXPECT_EQ(one.reads, 0);
}

TEST_F(StageTest, ADirectoryWithinTheSourceIsRefused) {
  const std::string root = directory_ / "root";
  std::filesystem::create_directories(root + "/sub");
  WriteBytes(root + "/f", "1");
  ASSERT_OK_AND_ASSIGN(const auto local, OpenStorage(root));
  const auto stage = [&](const std::string& from, const std::string& to) {
    return Stage(*local, from, {.directory = to}).status();
  };
  for (const std::string& to : {root, root + "/", root + "/sub", root + "/new/deep",
                                root + "/sub/../other", root + "/./sub"}) {
    EXPECT_THAT(stage(root, to),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("choose another")))
        << to;
    EXPECT_THAT(stage(root + "/", to), StatusIs(StatusCode::kInvalidArgument)) << to;
  }
  EXPECT_EQ(ReadBytes(root + "/f"), "1");
  EXPECT_FALSE(std::filesystem::exists(root + "/new"));
  std::filesystem::create_directory_symlink(root, directory_ / "link");
  EXPECT_THAT(stage(root, directory_ / "link/sub"), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(stage(root, directory_ / "root2"));
}

TEST_F(StageTest, ASizeThatCannotBeIsRefused) {
  for (const std::int64_t size : {std::int64_t{1} << 62, INT64_MAX, (std::int64_t{1} << 50) + 1}) {
    source_.stated_bytes = size;
    EXPECT_THAT(Run(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("2^50")));
  }
}

TEST_F(StageTest, ADamagedManifestMeansThatAllIsCopiedAgain) {
  ASSERT_OK(Run());
  const std::string good = ReadBytes(out_ + "/ait-stage.json");
  for (std::size_t place = 0; place < good.size(); place += 41) {
    std::string bad = good;
    bad[place] = bad[place] == '7' ? '3' : '7';
    WriteBytes(out_ + "/ait-stage.json", bad);
    ASSERT_OK(Run());
    EXPECT_EQ(source_.reads, kParts) << place;
  }
  ExpectAll();
}

TEST_F(StageTest, OneAtATime) {
  ASSERT_OK(Run());
  const int fd = ::open(out_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_THAT(Run(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another process")));
  ::close(fd);
}

TEST_F(StageTest, SaysWhatCannotBe) {
  EXPECT_THAT(Stage(source_, "s3://b/d/", {}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Run({.threads = 0}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Stage(source_, "s3://b/none/", {.directory = out_}),
              StatusIs(StatusCode::kNotFound, HasSubstr("nothing to stage")));
  for (const char* name :
       {"../up", "x/../../up", "x//y", "./x", "ait-stage.json", ".ait-stage/x", "f2/below"}) {
    FakeStorage source;
    source.Put("f2", "1");
    source.Put(StrCat("", name), "2");
    EXPECT_THAT(Stage(source, "", {.directory = out_}), StatusIs(StatusCode::kInvalidArgument))
        << name;
  }
  EXPECT_THAT(Run({.progress = [](const auto&) { return CancelledError("enough"); }}),
              StatusIs(StatusCode::kCancelled));
}

TEST_F(StageTest, APrefixWithoutASlashIsAFolderOrAnObject) {
  Put("s3://b/d2/f", 10);
  ASSERT_OK_AND_ASSIGN(StageReport report, Stage(source_, "s3://b/d", {.directory = out_}));
  EXPECT_EQ(report.files, 7);
  ExpectAll();
  ASSERT_OK_AND_ASSIGN(report, Stage(source_, "s3://b/other", {.directory = directory_ / "o"}));
  EXPECT_EQ(ReadBytes(directory_ / "o/other"), texts_["s3://b/other"]);
}

TEST_F(StageTest, AKillAtAnyMomentCostsAtMostWhatWasUnderWay) {
  const std::string root = directory_ / "root", log = directory_ / "log";
  std::filesystem::create_directories(root + "/sub");
  std::map<std::string, std::string> files;
  for (int i = 0; i < 10; ++i) {
    const std::string name = StrCat(i % 2 == 0 ? "" : "sub/", i);
    files[name] = RandomText(static_cast<std::size_t>(20'000 + i), ++seed_);
    WriteBytes(root + "/" + name, files[name]);
  }
  std::mt19937 random(3);
  int kills = 0;
  for (; kills < 200; ++kills) {
    Process peer = Process::Spawn(
        {.program = AIT_CACHE_PEER, .args = {"stage", root, log, out_, "0", "1", "unused"}});
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % (30 + 4 * kills)));
    ::kill(peer.pid(), SIGKILL);  // it may have ended
    const auto exit = peer.Wait();
    if (exit.code == 0) break;
    EXPECT_EQ(exit.code, 128 + SIGKILL) << exit.output;
    for (const auto& [name, text] : files) {
      const std::string path = out_ + "/" + name;
      if (!std::filesystem::exists(path)) continue;
      EXPECT_EQ(ReadBytes(path), text);
    }
  }
  EXPECT_LT(kills, 200);
  for (const auto& [name, text] : files) EXPECT_EQ(ReadBytes(out_ + "/" + name), text);
  const std::string reads = ReadBytes(log);
  EXPECT_LE(std::count(reads.begin(), reads.end(), '\n'), 50 + kills * 2);
  EXPECT_FALSE(std::filesystem::exists(out_ + "/.ait-stage"));
}

TEST_F(StageTest, AFullDiskIsSeenBeforeTheWork) {
  const std::string root = directory_ / "root", small = directory_ / "small";
  std::filesystem::create_directories(root);
  std::filesystem::create_directories(small);
  WriteBytes(root + "/large", RandomText(300'000, 1));
  const auto exit =
      Process::Spawn({.program = AIT_CACHE_PEER,
                      .args = {"stage-full", root, directory_ / "log", small, "0", "0", "unused"}})
          .Wait();
  if (exit.output.starts_with("skipped")) GTEST_SKIP() << "no right to mount a small disk";
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(exit.output, HasSubstr("bytes more, free are"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "log"));
}

}  // namespace
}  // namespace ait
