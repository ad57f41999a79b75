// SPDX-License-Identifier: Apache-2.0
#include "optim/file_io.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "support/status_matchers.h"

namespace ait::internal {
namespace {

FileRequest Read(std::vector<std::byte>& into, std::int64_t offset) {
  return {.kind = FileRequest::Kind::kRead,
          .data = into.data(),
          .bytes = static_cast<std::int64_t>(into.size()),
          .offset = offset};
}

FileRequest Write(std::vector<std::byte>& from, std::int64_t offset) {
  FileRequest request = Read(from, offset);
  request.kind = FileRequest::Kind::kWrite;
  return request;
}

// Moves one byte at a time, is interrupted before each, and fails from an offset on.
class SlowCalls final : public FileCalls {
 public:
  explicit SlowCalls(std::int64_t fails_at = 1 << 20) : fails_at_(fails_at) {}
  std::int64_t Read(int fd, void* data, std::int64_t, std::int64_t offset) override {
    if (offset >= fails_at_) return -EIO;
    return (calls_++ % 2 == 0) ? -EINTR : FileCalls::Read(fd, data, 1, offset);
  }
  std::int64_t Write(int fd, const void* data, std::int64_t, std::int64_t offset) override {
    if (offset >= fails_at_) return -EIO;
    return (calls_++ % 2 == 0) ? -EINTR : FileCalls::Write(fd, data, 1, offset);
  }

 private:
  std::int64_t fails_at_;
  int calls_ = 0;
};

FileDescriptor NewFile() {
  FileDescriptor fd(::open(::testing::TempDir().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  EXPECT_TRUE(fd.is_open()) << std::strerror(errno);
  return fd;
}

void WaitFor(FileIo& io, const FileRequest& request) {
  while (!request.done) ASSERT_OK(io.WaitForAny());
}

// Every way to read and write does the same.
class FileIoContract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    fd_ = NewFile();
    if (std::string_view(GetParam()) == "io_uring") {
      auto ring = OpenUring(fd_.get(), 8);
      if (!ring.ok()) GTEST_SKIP() << "no io_uring: " << ring.status();
      io_ = *std::move(ring);
    } else {
      io_ = OpenFileThread(fd_.get());
    }
    EXPECT_EQ(io_->name(), GetParam());
  }

  FileDescriptor fd_;
  std::unique_ptr<FileIo> io_;
};

TEST_P(FileIoContract, ReadsWhatWasWrittenWithSeveralUnderWay) {
  constexpr int kCount = 8;
  std::vector<std::vector<std::byte>> out(kCount, std::vector<std::byte>(100'000));
  std::vector<std::vector<std::byte>> in(kCount, std::vector<std::byte>(100'000));
  std::vector<FileRequest> requests(kCount);
  for (int i = 0; i < kCount; ++i) {
    std::ranges::fill(out[i], static_cast<std::byte>(i + 1));
    requests[i] = Write(out[i], i * 100'000);
    ASSERT_OK(io_->Start(requests[i]));
  }
  for (FileRequest& request : requests) WaitFor(*io_, request);
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(requests[i].error, 0);
    requests[i] = Read(in[i], i * 100'000);
    ASSERT_OK(io_->Start(requests[i]));
  }
  for (FileRequest& request : requests) WaitFor(*io_, request);
  EXPECT_EQ(in, out);
}

TEST_P(FileIoContract, SaysThatTheFileEnds) {
  std::vector<std::byte> bytes(1000);
  FileRequest request = Write(bytes, 0);
  ASSERT_OK(io_->Start(request));
  WaitFor(*io_, request);
  request = Read(bytes, 600);
  ASSERT_OK(io_->Start(request));
  WaitFor(*io_, request);
  EXPECT_EQ(request.error, FileRequest::kFileEnds);
  EXPECT_EQ(request.moved, 400);
}

TEST_P(FileIoContract, DoesNotWaitForNothing) {
  EXPECT_OK(io_->WaitForAny());
  EXPECT_OK(io_->Poll());
}

TEST_P(FileIoContract, GoesOnAfterTheThreadThatAskedHasEnded) {
  std::vector<std::byte> bytes(1'000'000, std::byte{7});
  FileRequest request = Write(bytes, 0);
  std::jthread([&] { EXPECT_OK(io_->Start(request)); }).join();
  WaitFor(*io_, request);
  EXPECT_EQ(request.error, 0);
  EXPECT_EQ(request.moved, 1'000'000);
}

TEST_P(FileIoContract, EndsOnlyWhenNothingIsUnderWay) {
  std::vector<std::byte> bytes(1'000'000, std::byte{7});
  FileRequest request = Write(bytes, 0);
  ASSERT_OK(io_->Start(request));
  io_.reset();
  EXPECT_EQ(request.moved, 1'000'000);
}

INSTANTIATE_TEST_SUITE_P(Ways, FileIoContract, ::testing::Values("io_uring", "thread"));

TEST(FileThread, GoesOnAfterShortCountsAndInterruptions) {
  const FileDescriptor fd = NewFile();
  const auto io = OpenFileThread(fd.get(), std::make_unique<SlowCalls>());
  std::vector<std::byte> out(300, std::byte{5});
  std::vector<std::byte> in(300);
  FileRequest request = Write(out, 10);
  ASSERT_OK(io->Start(request));
  WaitFor(*io, request);
  request = Read(in, 10);
  ASSERT_OK(io->Start(request));
  WaitFor(*io, request);
  EXPECT_EQ(request.error, 0);
  EXPECT_EQ(in, out);
}

TEST(FileThread, TellsAnErrorAndHowFarItCame) {
  const FileDescriptor fd = NewFile();
  const auto io = OpenFileThread(fd.get(), std::make_unique<SlowCalls>(/*fails_at=*/100));
  std::vector<std::byte> out(300, std::byte{5});
  FileRequest request = Write(out, 10);
  ASSERT_OK(io->Start(request));
  WaitFor(*io, request);
  EXPECT_EQ(request.error, EIO);
  EXPECT_EQ(request.moved, 90);
}

TEST(Advance, AsksForTheRestAfterAShortCount) {
  FileRequest request{.bytes = 100};
  EXPECT_TRUE(Advance(request, 60));
  EXPECT_EQ(request.moved, 60);
  EXPECT_FALSE(Advance(request, 40));
  EXPECT_EQ(request.error, 0);
}

TEST(Advance, AsksAgainAfterAnInterruptionButNotForever) {
  for (const int error : {EINTR, EAGAIN, ECANCELED}) {
    FileRequest request{.bytes = 100};
    int repeats = 0;
    while (Advance(request, -error)) ++repeats;
    EXPECT_GT(repeats, 1000);
    EXPECT_EQ(request.error, error);
  }
}

TEST(Advance, TakesAWriteOfNothingForAnError) {
  FileRequest request{.kind = FileRequest::Kind::kWrite, .bytes = 100};
  EXPECT_FALSE(Advance(request, 0));
  EXPECT_EQ(request.error, EIO);
}

}  // namespace
}  // namespace ait::internal
