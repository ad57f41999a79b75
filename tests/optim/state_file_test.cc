// SPDX-License-Identifier: Apache-2.0
#include "optim/state_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kChunk = 64 << 10;

// A directory of this test.
class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() {
    std::string path = ::testing::TempDir() + "state-file-XXXXXX";
    directory_ = ::mkdtemp(path.data());
  }
  ~StateFileTest() override { std::filesystem::remove_all(directory_); }

  StateFileOptions Options(std::int64_t count, int chunks = 4) const {
    return {.offload = {.directory = directory_, .chunk = Bytes(kChunk), .chunks = chunks},
            .count = count};
  }

  // The state file's path, which has no name of its own.
  std::string DescriptorPath() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      if (target.starts_with(directory_)) return entry.path().string();
    }
    return "";
  }

  std::string directory_;
};

// Calls that fail at an offset once they are told to.
class FailingCalls final : public FileCalls {
 public:
  FailingCalls(const bool& reads, const bool& writes) : reads_(reads), writes_(writes) {}
  std::int64_t Read(int fd, void* data, std::int64_t bytes, std::int64_t offset) override {
    return reads_ ? -EIO : FileCalls::Read(fd, data, bytes, offset);
  }
  std::int64_t Write(int fd, const void* data, std::int64_t bytes, std::int64_t offset) override {
    return writes_ ? -EIO : FileCalls::Write(fd, data, bytes, offset);
  }

 private:
  const bool& reads_;
  const bool& writes_;
};

Status Fill(StateFile& file, std::int64_t chunk, std::byte value) {
  return file.Use(chunk, StateAccess::kReadWrite, [&](std::byte* data) {
    std::fill_n(data, kChunk, value);
    return OkStatus();
  });
}

void ExpectAll(StateFile& file, std::int64_t chunk, std::byte value) {
  EXPECT_OK(file.Use(chunk, StateAccess::kRead, [&](const std::byte* data) {
    EXPECT_EQ(std::count(data, data + kChunk, value), kChunk) << "chunk " << chunk;
    return OkStatus();
  }));
}

TEST_F(StateFileTest, IsZerosAtFirst) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(10)));
  for (std::int64_t i = 0; i < 10; ++i) ExpectAll(*file, i, std::byte{0});
}

TEST_F(StateFileTest, TellsBytesOfTheFileAndOfMemory) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(10)));
  EXPECT_EQ(file->file_bytes(), 10 * kChunk);
  EXPECT_EQ(file->memory_bytes(), 4 * kChunk);
  ASSERT_OK_AND_ASSIGN(auto small, StateFile::Create(Options(2)));
  EXPECT_EQ(small->memory_bytes(), 2 * kChunk);
}

TEST_F(StateFileTest, LeavesNoNameBehind) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(10)));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(StateFileTest, SaysHowItReadsAndWrites) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(3)));
  EXPECT_THAT(file->description(), AllOf(HasSubstr(directory_), HasSubstr(": ")));
  StateFileOptions options = Options(3);
  options.buffered = true;
  options.io = [](int fd) { return OpenFileThread(fd); };
  ASSERT_OK_AND_ASSIGN(auto other, StateFile::Create(options));
  EXPECT_THAT(other->description(), HasSubstr(": thread, buffered, because it was asked for"));
}

// Against a copy in memory, in every way to read and write.
struct Way {
  const char* name;
  bool thread;
  bool buffered;
  int chunks;
  std::int64_t count;
};
class StateFileOrder : public StateFileTest, public ::testing::WithParamInterface<Way> {
 protected:
  StateFileOptions WayOptions() const {
    StateFileOptions options = Options(GetParam().count, GetParam().chunks);
    options.buffered = GetParam().buffered;
    if (GetParam().thread) options.io = [](int fd) { return OpenFileThread(fd); };
    return options;
  }
};

TEST_P(StateFileOrder, KeepsChunksInRoundsFrontToBack) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(WayOptions()));
  for (int round = 1; round < 6; ++round) {
    for (std::int64_t i = 0; i < GetParam().count; ++i) {
      ASSERT_OK(file->Use(i, StateAccess::kReadWrite, [&](std::byte* data) {
        for (std::int64_t k = 0; k < kChunk; k += 512) {
          const auto before = static_cast<std::byte>(i * 7 * (round - 1) + k / 512 * (round - 1));
          EXPECT_EQ(data[k], before) << "round " << round << " chunk " << i << " byte " << k;
          data[k] = static_cast<std::byte>(i * 7 * round + k / 512 * round);
        }
        return OkStatus();
      }));
    }
  }
}

TEST_P(StateFileOrder, KeepsChunksInAnyOrder) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(WayOptions()));
  std::mt19937 random(1);
  std::map<std::int64_t, std::byte> expected;
  for (int i = 0; i < 300; ++i) {
    const auto chunk = static_cast<std::int64_t>(random() % GetParam().count);
    ExpectAll(*file, chunk, expected[chunk]);
    if (random() % 2 == 0) continue;
    expected[chunk] = static_cast<std::byte>(random() % 256);
    ASSERT_OK(Fill(*file, chunk, expected[chunk]));
    if (random() % 10 == 0) {
      ASSERT_OK(file->Flush());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, StateFileOrder,
    ::testing::Values(Way{"best", false, false, 4, 11}, Way{"best_least", false, false, 3, 11},
                      Way{"best_all", false, false, 16, 11}, Way{"best_one", false, false, 4, 1},
                      Way{"best_exact", false, false, 4, 4},
                      Way{"best_buffered", false, true, 4, 11}, Way{"thread", true, false, 4, 11},
                      Way{"thread_least", true, true, 3, 5}),
    [](const auto& way) { return std::string(way.param.name); });

TEST_F(StateFileTest, MayBeUsedByOneThreadAfterTheOther) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(20)));
  for (std::int64_t i = 0; i < 20; ++i) {
    std::jthread([&] { EXPECT_OK(Fill(*file, i, static_cast<std::byte>(i))); }).join();
  }
  for (std::int64_t i = 0; i < 20; ++i) ExpectAll(*file, i, static_cast<std::byte>(i));
}

TEST_F(StateFileTest, ReturnsTheErrorOfTheBodyAndGoesOn) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(5)));
  EXPECT_THAT(file->Use(1, StateAccess::kRead, [](std::byte*) { return AbortedError("body"); }),
              StatusIs(StatusCode::kAborted, "body"));
  EXPECT_OK(Fill(*file, 1, std::byte{3}));
  EXPECT_THAT(Fill(*file, 5, std::byte{3}), StatusIs(StatusCode::kOutOfRange));
}

// Faults.

TEST_F(StateFileTest, RefusesOptionsThatItDoesNotAllow) {
  StateFileOptions options = Options(5);
  options.offload.chunk = KiB(63);
  EXPECT_THAT(StateFile::Create(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("StateOffload::chunk is 64512")));
  EXPECT_THAT(StateFile::Create(Options(0)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(StateFile::Create(Options(1, 2)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunks is 2")));
}

TEST_F(StateFileTest, SaysThatTheDirectoryIsMissing) {
  StateFileOptions options = Options(5);
  options.offload.directory += "/gone";
  EXPECT_THAT(StateFile::Create(options), StatusIs(StatusCode::kNotFound, HasSubstr("/gone")));
  options.offload.directory = "/dev/null";
  EXPECT_THAT(StateFile::Create(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("must be a directory")));
}

TEST_F(StateFileTest, SaysThatTheDirectoryIsNotWritable) {
  std::filesystem::permissions(
      directory_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  std::jthread([&] {
    // Of this thread alone: root may write everywhere.
    if (::geteuid() == 0) {
      ASSERT_EQ(::syscall(SYS_setresuid, 65534, 65534, -1), 0);
    }
    EXPECT_THAT(StateFile::Create(Options(5)),
                StatusIs(StatusCode::kPermissionDenied, HasSubstr(directory_)));
  }).join();
}

TEST_F(StateFileTest, SaysThatTheLimitOfAFileIsTooLow) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 5 * kChunk - 1;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto file = StateFile::Create(Options(5));
  const auto smaller = StateFile::Create(Options(4));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(file, StatusIs(StatusCode::kResourceExhausted,
                             AllOf(HasSubstr("327680 bytes are needed"), HasSubstr("327679"))));
  EXPECT_OK(smaller);
}

// Calls `body` in a thread whose directory is a tmpfs mounted with `options`.
void WithFileSystem(const std::string& directory, unsigned long flags, const char* options,
                    const std::function<void()>& body) {
  bool mounted = false;
  std::jthread([&] {
    if (::unshare(CLONE_NEWNS) != 0) return;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    if (::mount("tmpfs", directory.c_str(), "tmpfs", flags, options) != 0) return;
    mounted = true;
    body();
  }).join();
  if (!mounted) GTEST_SKIP() << "this process may not mount a file system";
}

TEST_F(StateFileTest, SaysHowMuchIsNeededAndFreeWhereTheDiskIsFull) {
  WithFileSystem(directory_, 0, "size=256k", [&] {
    EXPECT_THAT(
        StateFile::Create(Options(5)),
        StatusIs(StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("327680 bytes are needed, free are 262144"), HasSubstr("tmpfs"))));
    ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(4, 3)));
    ASSERT_OK(Fill(*file, 3, std::byte{1}));
    ExpectAll(*file, 0, std::byte{0});
    EXPECT_OK(file->Flush());
  });
}

TEST_F(StateFileTest, SaysThatTheFileSystemIsReadOnly) {
  WithFileSystem(directory_, MS_RDONLY, "size=1m", [&] {
    EXPECT_THAT(StateFile::Create(Options(5)),
                StatusIs(StatusCode::kPermissionDenied, HasSubstr("Read-only file system")));
  });
}

TEST_F(StateFileTest, UsesAThreadWhereIoUringIsForbidden) {
  std::jthread([&] {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {.len = std::size(filter), .filter = filter};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      GTEST_SKIP() << "no seccomp filter may be set";
    }
    ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(9)));
    EXPECT_THAT(file->description(), AllOf(HasSubstr(": thread, "), HasSubstr(", because ")));
    for (std::int64_t i = 0; i < 9; ++i) ASSERT_OK(Fill(*file, i, static_cast<std::byte>(i)));
    for (std::int64_t i = 0; i < 9; ++i) ExpectAll(*file, i, static_cast<std::byte>(i));
  }).join();
}

TEST_F(StateFileTest, SaysThatTheFileWasTruncated) {
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(Options(20, 3)));
  const std::string path = DescriptorPath();
  ASSERT_NE(path, "");
  ASSERT_OK(Fill(*file, 0, std::byte{1}));
  ASSERT_EQ(::truncate(path.c_str(), 10 * kChunk), 0);
  Status status = file->Use(12, StateAccess::kRead, [](std::byte*) { return OkStatus(); });
  EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss,
                               AllOf(HasSubstr("cannot read 65536 bytes at offset "),
                                     HasSubstr(directory_), HasSubstr("truncated"))));
  EXPECT_EQ(file->Use(0, StateAccess::kRead, [](std::byte*) { return OkStatus(); }), status);
}

TEST_F(StateFileTest, TellsAReadErrorAndStaysBroken) {
  bool reads = false;
  const bool writes = false;
  StateFileOptions options = Options(20, 3);
  options.io = [&](int fd) {
    return OpenFileThread(fd, std::make_unique<FailingCalls>(reads, writes));
  };
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(options));
  reads = true;
  EXPECT_THAT(Fill(*file, 7, std::byte{1}),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("cannot read 65536 bytes at offset "), HasSubstr(directory_),
                             HasSubstr("Input/output error"))));
  EXPECT_THAT(file->Flush(), StatusIs(StatusCode::kDataLoss));
}

TEST_F(StateFileTest, TellsAWriteErrorAtTheNextUseOrFlush) {
  const bool reads = false;
  bool writes = false;
  StateFileOptions options = Options(20, 3);
  options.io = [&](int fd) {
    return OpenFileThread(fd, std::make_unique<FailingCalls>(reads, writes));
  };
  ASSERT_OK_AND_ASSIGN(auto file, StateFile::Create(options));
  writes = true;
  ASSERT_OK(Fill(*file, 7, std::byte{1}));
  EXPECT_THAT(file->Flush(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("cannot write 65536 bytes at offset")));
}

}  // namespace
}  // namespace ait::internal
