// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/local_storage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "data/data_test_support.h"
#include "support/forbidden_calls.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ExpectInChild;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum LocalEngine;

constexpr LocalEngine kEngines[] = {kAutomatic, kPread, kUring, kMapped, kNetwork};

std::string RandomText(std::size_t size, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(random() >> 32);
  return text;
}

std::span<std::byte> BytesOf(std::string& text) { return std::as_writable_bytes(std::span(text)); }

class Messages final : public LogSink {
 public:
  void Write(Severity severity, std::string_view, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    (severity == Severity::kInfo ? infos : warnings).emplace_back(message);
  }
  std::vector<std::string> infos, warnings;

 private:
  std::mutex mutex_;
};

StatusOr<std::unique_ptr<LocalStorage>> Files(LocalEngine engine, LogSink* log = nullptr) {
  return LocalStorage::Create(
      {.engine = engine, .check_interval = std::chrono::milliseconds(0), .log = log});
}

// All that a stream gives, or its error.
StatusOr<std::string> ReadStream(const StoredObject& object, const StreamOptions& options) {
  AIT_ASSIGN_OR_RETURN(const auto stream, object.Stream(options));
  std::string read;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const ByteView block, stream->Next());
    if (block.is_empty()) return read;
    read += block.text();
  }
}

class LocalEngines : public ::testing::TestWithParam<LocalEngine> {};

TEST_P(LocalEngines, StreamsGiveEveryRangeInEveryShape) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  std::mt19937 random(2);
  for (const std::size_t size : {0u, 1u, 4095u, 4096u, 100'001u, 6'000'000u}) {
    const std::string text = RandomText(size);
    WriteBytes(directory / "file", text);
    ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
    EXPECT_EQ(object->info().size_bytes, static_cast<std::int64_t>(size));
    for (const int depth : {0, 1, 3, 8}) {
      for (const std::int64_t block : {1'000, 65'536, 1 << 20}) {
        if (size > 1'000'000 && block < 4096) continue;
        const std::size_t offset = random() % (size + 1);
        const std::size_t length = random() % 2 == 0 ? size : random() % (size + 1);
        ASSERT_OK_AND_ASSIGN(const std::string read,
                             ReadStream(*object, {.offset_bytes = static_cast<std::int64_t>(offset),
                                                  .length_bytes = static_cast<std::int64_t>(length),
                                                  .block_bytes = block,
                                                  .depth = depth}));
        ASSERT_EQ(read, text.substr(offset, length)) << size << " from " << offset;
      }
    }
    std::filesystem::remove(directory / "file");
  }
}

TEST_P(LocalEngines, ManyReadsEachGiveTheirBytesOrTheirError) {
  const TempDir directory;
  const std::string text = RandomText(300'000);
  WriteBytes(directory / "file", text);
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  std::mt19937 random(3);
  for (const std::size_t count : {0u, 1u, 7u, 8u, 300u, 1'500u}) {
    std::vector<std::string> out(count);
    std::vector<ObjectRead> reads(count);
    for (std::size_t i = 0; i < count; ++i) {
      out[i].resize(random() % 3'000);
      reads[i] = {static_cast<std::int64_t>(random() % (text.size() - out[i].size())),
                  BytesOf(out[i]), UnavailableError("not done")};
    }
    object->ReadMany(reads);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_OK(reads[i].status);
      ASSERT_EQ(out[i],
                text.substr(static_cast<std::size_t>(reads[i].offset_bytes), out[i].size()));
    }
    if (count < 2) continue;
    reads[1].offset_bytes = 300'001;
    object->ReadMany(reads);
    EXPECT_EQ(reads[1].status.code(), StatusCode::kOutOfRange);
    EXPECT_OK(reads[0].status);
  }
}

TEST_P(LocalEngines, ReadsThatAreNotCachedAreDoneTogether) {
  const TempDir directory;
  const std::string text = RandomText(3'000'000);
  WriteBytes(directory / "file", text);
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  const int fd = ::open((directory / "file").c_str(), O_RDONLY);
  std::mt19937 random(5);
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(::fdatasync(fd), 0);
    ASSERT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    std::vector<std::string> out(100, std::string(5'000, '\0'));
    std::vector<ObjectRead> reads;
    for (std::string& one : out) {
      reads.push_back({static_cast<std::int64_t>(random() % 2'990'000), BytesOf(one), {}});
    }
    // Two threads at once share the pool.
    std::thread other([&] { object->ReadMany(std::span(reads).first(50)); });
    object->ReadMany(std::span(reads).subspan(50));
    other.join();
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_OK(reads[i].status);
      ASSERT_EQ(out[i], text.substr(static_cast<std::size_t>(reads[i].offset_bytes), 5'000));
    }
  }
  ::close(fd);
}

TEST_P(LocalEngines, AFileThatShrinksIsDataLoss) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  for (const std::size_t left : {0u, 5'000u, 4'500'000u}) {
    WriteBytes(directory / "file", RandomText(5'000'000));
    ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
    std::string out(2'000, '\0');
    ASSERT_OK(object->ReadAt(4'990'000, BytesOf(out)));
    std::vector<std::string> outs(20, std::string(1'000, '\0'));
    std::vector<ObjectRead> reads;
    for (std::string& one : outs) reads.push_back({4'990'000, BytesOf(one), {}});
    object->ReadMany(reads);  // maps it, where that is the engine
    for (const ObjectRead& read : reads) ASSERT_OK(read.status);
    std::filesystem::resize_file(directory / "file", left);
    EXPECT_THAT(object->ReadAt(4'990'000, BytesOf(out)),
                StatusIs(StatusCode::kDataLoss, HasSubstr("shorter")));
    object->ReadMany(reads);
    for (const ObjectRead& read : reads) {
      EXPECT_THAT(read.status, StatusIs(StatusCode::kDataLoss, HasSubstr("shorter")));
    }
    for (const int depth : {0, 4}) {
      EXPECT_THAT(ReadStream(*object, {.block_bytes = 65'536, .depth = depth}),
                  StatusIs(StatusCode::kDataLoss, HasSubstr("shorter")));
    }
    std::filesystem::remove(directory / "file");
  }
}

TEST_P(LocalEngines, AFileThatIsCutWhileItIsReadIsAStatus) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  const std::string text = RandomText(2'000'000);
  for (int round = 0; round < 4; ++round) {
    WriteBytes(directory / "file", text);
    ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
    std::atomic<bool> stop = false;
    std::thread cutter([&] {
      while (!stop) {
        std::filesystem::resize_file(directory / "file", 10'000);
        std::filesystem::resize_file(directory / "file", 2'000'000);
      }
    });
    int errors = 0;
    for (int i = 0; i < 50; ++i) {
      std::vector<std::string> outs(40, std::string(3'000, '\0'));
      std::vector<ObjectRead> reads;
      for (std::string& out : outs) reads.push_back({i * 30'000, BytesOf(out), {}});
      object->ReadMany(reads);
      for (const ObjectRead& read : reads) {
        if (read.status.ok()) continue;
        ++errors;
        EXPECT_TRUE(read.status.code() == StatusCode::kDataLoss ||
                    read.status.code() == StatusCode::kAborted)
            << read.status;
      }
      const auto read = ReadStream(*object, {.block_bytes = 100'000, .depth = 3});
      EXPECT_TRUE(!read.ok() || *read == text);
    }
    stop = true;
    cutter.join();
    EXPECT_GT(errors, 0);
  }
}

TEST_P(LocalEngines, AFileThatIsWrittenToOrReplacedIsAborted) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  const auto change = [&](const std::function<void(const std::string&)>& how, const char* text) {
    const std::string path = directory / "file";
    WriteBytes(path, RandomText(200'000));
    auto object = files->Open(path);
    ASSERT_OK(object.status());
    // The clock of file systems is coarse: it may not have moved since the file was made.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    how(path);
    std::string out(100, '\0');
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT((*object)->ReadAt(5, BytesOf(out)),
                  StatusIs(StatusCode::kAborted, HasSubstr(text)));
    }
    ObjectRead reads[] = {{5, BytesOf(out), {}}};
    (*object)->ReadMany(reads);
    EXPECT_THAT(reads[0].status, StatusIs(StatusCode::kAborted));
    EXPECT_THAT(ReadStream(**object, {.block_bytes = 8'192, .depth = 2}),
                StatusIs(StatusCode::kAborted));
    EXPECT_NE(files->Stat(path)->version, (*object)->info().version);
    std::filesystem::remove(path);
  };
  change([](const std::string& path) { WriteBytes(path, RandomText(200'000, 9)); }, "written to");
  change([](const std::string& path) { std::ofstream(path, std::ios::app) << "more"; },
         "written to");
  change(
      [](const std::string& path) {
        WriteBytes(path + ".new", RandomText(200'000, 9));
        std::filesystem::last_write_time(path + ".new", std::filesystem::last_write_time(path));
        std::filesystem::rename(path + ".new", path);
      },
      "replaced");
}

TEST_P(LocalEngines, AFileThatIsDeletedIsReadToItsEnd) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  const std::string text = RandomText(5'000'000);
  WriteBytes(directory / "file", text);
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  std::filesystem::remove(directory / "file");
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadStream(*object, {.depth = 2}));
  EXPECT_EQ(read, text);
}

TEST_P(LocalEngines, AStreamOutlivesItsObjectAndStorageAndGoesFromThreadToThread) {
  const TempDir directory;
  const std::string text = RandomText(5'000'000);
  WriteBytes(directory / "file", text);
  for (const int depth : {0, 3}) {
    std::unique_ptr<ObjectStream> stream;
    {
      ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
      ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
      ASSERT_OK_AND_ASSIGN(stream, object->Stream({.block_bytes = 100'000, .depth = depth}));
    }
    std::string read;
    bool ended = false;
    while (!ended) {
      std::thread([&] {
        const auto block = stream->Next();
        ASSERT_OK(block.status());
        read += block->text();
        ended = block->is_empty();
      }).join();
    }
    EXPECT_EQ(read, text);
  }
}

TEST_P(LocalEngines, AStreamMayBeLeftAtAnyTimeAndItsBlocksKept) {
  const TempDir directory;
  const std::string text = RandomText(5'000'000);
  WriteBytes(directory / "file", text);
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  for (int taken = 0; taken < 6; ++taken) {
    std::vector<ByteView> blocks;
    ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 300'000, .depth = 4}));
    for (int i = 0; i < taken; ++i) {
      ASSERT_OK_AND_ASSIGN(const ByteView block, stream->Next());
      blocks.push_back(block);
    }
    stream.reset();
    std::string read;
    for (const ByteView& block : blocks) read += block.text();
    EXPECT_EQ(read, text.substr(0, read.size()));
  }
}

TEST_P(LocalEngines, AForkedChildReadsObjectsAndKeepsBlocksButNotStreams) {
  const TempDir directory;
  const std::string text = RandomText(8'000'000);
  WriteBytes(directory / "file", text);
  ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 500'000, .depth = 4}));
  std::string read;
  while (true) {
    ASSERT_OK_AND_ASSIGN(const ByteView block, stream->Next());
    if (block.is_empty()) break;
    // Others are on their way now, and their pages must stay the parent's.
    ExpectInChild({}, 0, [&] {
      EXPECT_EQ(block.text(), text.substr(read.size(), block.size_bytes()));
      EXPECT_THAT(stream->Next(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("forked")));
      stream.reset();
      std::string out(1'000, '\0');
      EXPECT_OK(object->ReadAt(77, BytesOf(out)));
      EXPECT_EQ(out, text.substr(77, 1'000));
      const auto again = ReadStream(*object, {.block_bytes = 500'000, .depth = 2});
      EXPECT_OK(again.status());
      EXPECT_TRUE(again.ok() && *again == text);
    });
    read += block.text();
  }
  EXPECT_TRUE(read == text);
}

TEST_P(LocalEngines, WorksOnAFileSystemInMemory) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const std::string path = StrCat("/dev/shm/ait-local-storage-test-", ::getpid());
  const std::string text = RandomText(6'000'000);
  WriteBytes(path, text);
  {
    ASSERT_OK_AND_ASSIGN(const auto files, Files(GetParam()));
    ASSERT_OK_AND_ASSIGN(const auto object, files->Open(path));
    const auto read = ReadStream(*object, {.offset_bytes = 5, .block_bytes = 100'000, .depth = 3});
    EXPECT_OK(read.status());
    EXPECT_TRUE(read.ok() && *read == text.substr(5));
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(All, LocalEngines, ::testing::ValuesIn(kEngines),
                         [](const auto& engine) { return std::string(Name(engine.param)); });

TEST(LocalStorage, OpensRegularFilesOnly) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(kAutomatic));
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  const auto expect = [&](const std::string& url, StatusCode code, const char* text) {
    EXPECT_THAT(files->Open(url), StatusIs(code, HasSubstr(text)));
    EXPECT_THAT(files->Stat(url), StatusIs(code));
  };
  expect(directory / "gone", StatusCode::kNotFound, "gone");
  expect(directory.path(), StatusCode::kInvalidArgument, "a directory");
  expect(directory / "fifo", StatusCode::kInvalidArgument, "a pipe");
  expect("/dev/null", StatusCode::kInvalidArgument, "a device");
  expect("", StatusCode::kInvalidArgument, "not a path");
  expect("s3://bucket/key", StatusCode::kInvalidArgument, "s3");
  expect("file://host/path", StatusCode::kInvalidArgument, "host");
  WriteBytes(directory / "a", "abc");
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open("file://" + directory / "a"));
  EXPECT_EQ(object->info().url, "file://" + directory / "a");
  EXPECT_EQ(object->info().version, files->Stat(directory / "a")->version);
}

TEST(LocalStorage, AFileThatMayNotBeReadIsPermissionDenied) {
  const TempDir directory;
  WriteBytes(directory / "a", "abc");
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((directory / "a").c_str(), 0), 0);
  ASSERT_OK_AND_ASSIGN(const auto files, Files(kAutomatic));
  ExpectInChild({}, 0, [&] {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return;
    EXPECT_THAT(files->Open(directory / "a"), StatusIs(StatusCode::kPermissionDenied));
  });
}

TEST(LocalStorage, RefusesOptionsOutOfRange) {
  EXPECT_THAT(LocalStorage::Create({.threads = 0}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(LocalStorage::Create({.data_bytes = -1}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(LocalStorage::Create({.check_interval = std::chrono::milliseconds(-1)}),
              StatusIs(StatusCode::kInvalidArgument));
}

std::vector<std::string> Listed(const Storage& files, const std::string& prefix) {
  std::vector<std::string> urls;
  EXPECT_OK(files.List(prefix, [&](const ObjectInfo& info) {
    urls.push_back(info.url.substr(prefix.size()));
    return OkStatus();
  }));
  return urls;
}

TEST(LocalStorage, ListsInTheOrderOfTheBytesOfUrls) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(kAutomatic));
  namespace fs = std::filesystem;
  fs::create_directories(directory / "a/deep");
  fs::create_directories(directory / "empty");
  for (const char* name : {"a/x", "a/deep/y", "a.b", "a-b", "a0", "B", "\xc3\xa4", "z"}) {
    WriteBytes(directory / name, "123");
  }
  const std::vector<std::string> urls = Listed(*files, directory.path());
  EXPECT_THAT(urls,
              ElementsAre("/B", "/a-b", "/a.b", "/a/deep/y", "/a/x", "/a0", "/z", "/\xc3\xa4"));
  EXPECT_TRUE(std::is_sorted(urls.begin(), urls.end()));
  EXPECT_THAT(Listed(*files, directory / "a/"), ElementsAre("deep/y", "x"));
  EXPECT_THAT(files->List(directory / "gone", [](const ObjectInfo&) { return OkStatus(); }),
              StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(files->List(directory / "z", [](const ObjectInfo&) { return OkStatus(); }),
              StatusIs(StatusCode::kNotFound));
  int visited = 0;
  EXPECT_THAT(files->List(directory.path(),
                          [&](const ObjectInfo& info) {
                            EXPECT_EQ(info.size_bytes, 3);
                            return ++visited == 4 ? NotFoundError("enough") : OkStatus();
                          }),
              StatusIs(StatusCode::kNotFound, HasSubstr("enough")));
  EXPECT_EQ(visited, 4);
}

TEST(LocalStorage, ListingFollowsLinksButNotInCircles) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(kAutomatic));
  namespace fs = std::filesystem;
  fs::create_directories(directory / "a/b");
  fs::create_directories(directory / "c");
  WriteBytes(directory / "c/file", "1");
  fs::create_symlink("..", directory / "a/b/up");
  fs::create_symlink("self", directory / "self");
  fs::create_symlink("nowhere", directory / "dangling");
  fs::create_directory_symlink("../../c", directory / "a/b/to-c");
  fs::create_symlink("c/file", directory / "link");
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(Listed(*files, directory.path()), ElementsAre("/a/b/to-c/file", "/c/file", "/link"));
}

TEST(LocalStorage, WithoutIoUringStreamsGoByPreadAndTheLogHearsItOnce) {
  const TempDir directory;
  const std::string text = RandomText(6'000'000);
  WriteBytes(directory / "file", text);
  for (const int error : {EPERM, ENOSYS, ENOMEM, EOPNOTSUPP}) {
    Messages log;
    ExpectInChild({SYS_io_uring_setup}, error, [&] {
      const auto files = Files(kUring, &log);
      const auto object = (*files)->Open(directory / "file");
      for (int i = 0; i < 3; ++i) {
        const auto read = ReadStream(**object, {.depth = 2});
        EXPECT_TRUE(read.ok() && *read == text);
      }
      EXPECT_EQ(log.warnings.size(), 1u);
      EXPECT_THAT(log.warnings.at(0), HasSubstr("io_uring"));
      const auto choice = (*files)->Explain(directory / "file");
      EXPECT_EQ(choice->streams, kPread);
    });
  }
  ExpectInChild({SYS_io_uring_enter}, EPERM, [&] {
    const auto files = Files(kUring);
    const auto object = (*files)->Open(directory / "file");
    const auto read = ReadStream(**object, {.depth = 2});
    EXPECT_TRUE(read.ok() && *read == text);
  });
}

TEST(LocalStorage, WithoutProcessVmReadvSmallReadsGoByPread) {
  const TempDir directory;
  const std::string text = RandomText(300'000);
  WriteBytes(directory / "file", text);
  Messages log;
  ExpectInChild({SYS_process_vm_readv}, EPERM, [&] {
    const auto files = Files(kMapped, &log);
    const auto object = (*files)->Open(directory / "file");
    std::string out(20'000, '\0');
    std::vector<ObjectRead> reads;
    for (std::size_t i = 0; i < 20; ++i) {
      reads.push_back(
          {static_cast<std::int64_t>(i * 1'000), BytesOf(out).subspan(i * 1'000, 1'000), {}});
    }
    (*object)->ReadMany(reads);
    EXPECT_EQ(out, text.substr(0, out.size()));
    EXPECT_EQ(log.warnings.size(), 1u);
  });
}

TEST(LocalStorage, ExplainsItsChoice) {
  const TempDir directory;
  WriteBytes(directory / "file", RandomText(6'000'000));
  Messages log;
  ASSERT_OK_AND_ASSIGN(const auto files, Files(kAutomatic, &log));
  ASSERT_OK_AND_ASSIGN(const EngineChoice choice, files->Explain(directory / "file"));
  EXPECT_EQ(choice.size_bytes, 6'000'000);
  EXPECT_FALSE(choice.file_system.empty());
  EXPECT_FALSE(choice.streams_reason.empty());
  EXPECT_THAT(ToString(choice), HasSubstr(choice.file_system));
  EXPECT_THAT(ToString(choice), HasSubstr("small reads by"));
  ASSERT_OK_AND_ASSIGN(const auto object, files->Open(directory / "file"));
  for (int i = 0; i < 3; ++i) ASSERT_OK(ReadStream(*object, {.depth = 2}).status());
  EXPECT_LE(log.infos.size(), 1u);
  for (const LocalEngine engine : kEngines) {
    ASSERT_OK_AND_ASSIGN(const LocalEngine same, LocalEngineFromName(Name(engine)));
    EXPECT_EQ(same, engine);
  }
  EXPECT_THAT(LocalEngineFromName("fast"), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait
