// SPDX-License-Identifier: Apache-2.0
#include "base/io_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "base/file_descriptor.h"
#include "support/status_matchers.h"

namespace ait::internal {
namespace {

// The parameter: one thread or several.
class IoRingTest : public ::testing::TestWithParam<IoRing::Threads> {
 protected:
  void SetUp() override {
    auto ring = IoRing::Open(4, GetParam());
    if (!ring.ok()) GTEST_SKIP() << "no io_uring: " << ring.status();
    ring_ = std::move(*ring);
    file_ = FileDescriptor(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
    if (!file_.is_open()) GTEST_SKIP() << "no files without a name in /tmp";
  }

  IoRing::Request Request(IoRing::Kind kind, std::string& text, std::uint64_t offset) {
    return {.kind = kind,
            .fd = file_.get(),
            .data = reinterpret_cast<std::byte*>(text.data()),
            .bytes = static_cast<std::uint32_t>(text.size()),
            .offset = offset,
            .tag = &text};
  }

  std::unique_ptr<IoRing> ring_;
  FileDescriptor file_;
};

TEST_P(IoRingTest, WritesAndReads) {
  std::string written = "0123456789";
  ASSERT_OK(ring_->Start(Request(IoRing::Kind::kWrite, written, 3)));
  ASSERT_OK_AND_ASSIGN(IoRing::Done done, ring_->Wait());
  EXPECT_EQ(done.tag, &written);
  EXPECT_EQ(done.result, 10);
  std::string a(4, ' '), b(10, ' ');
  ASSERT_OK(ring_->Start(Request(IoRing::Kind::kRead, a, 5)));
  ASSERT_OK(ring_->Start(Request(IoRing::Kind::kRead, b, 9)));
  std::int64_t moved = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(done, ring_->Wait());
    moved += done.result;
  }
  EXPECT_EQ(moved, 4 + 4);  // the file ends in the middle of the second
  EXPECT_EQ(a, "2345");
  EXPECT_EQ(b.substr(0, 4), "6789");
  ASSERT_OK_AND_ASSIGN(const auto none, ring_->Poll());
  EXPECT_FALSE(none.has_value());
}

TEST_P(IoRingTest, AnErrorIsTheResultOfItsRequest) {
  std::string text(4, ' ');
  IoRing::Request request = Request(IoRing::Kind::kRead, text, 0);
  request.fd = -1;
  ASSERT_OK(ring_->Start(request));
  ASSERT_OK_AND_ASSIGN(const IoRing::Done done, ring_->Wait());
  EXPECT_EQ(done.result, -EBADF);
}

INSTANTIATE_TEST_SUITE_P(Both, IoRingTest,
                         ::testing::Values(IoRing::Threads::kOne, IoRing::Threads::kMany));

TEST(IoRing, AnotherThreadMayWaitIfItWasOpenedSo) {
  auto ring = IoRing::Open(2, IoRing::Threads::kMany);
  if (!ring.ok()) GTEST_SKIP() << "no io_uring: " << ring.status();
  const FileDescriptor zero(::open("/dev/zero", O_RDONLY));
  std::byte byte{1};
  std::thread([&] {
    ASSERT_OK((*ring)->Start({.fd = zero.get(), .data = &byte, .bytes = 1}));
  }).join();
  ASSERT_OK_AND_ASSIGN(const IoRing::Done done, (*ring)->Wait());
  EXPECT_EQ(done.result, 1);
  EXPECT_EQ(byte, std::byte{0});
}

}  // namespace
}  // namespace ait::internal
