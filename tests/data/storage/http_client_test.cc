// SPDX-License-Identifier: Apache-2.0
// What the requests of one storage share: connections, permits, and their end.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/storage/http_storage.h"
#include "data/storage/http_date_internal.h"
#include "data/storage/http_test_support.h"
#include "support/forbidden_calls.h"
#include "support/http_fault_server.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Counting;
using ::ait::testing::ExpectInChild;
using ::ait::testing::Fast;
using ::ait::testing::HttpFault;
using ::ait::testing::HttpFaultServer;
using ::ait::testing::HttpFixture;
using ::ait::testing::kPart;
using ::ait::testing::StatusIs;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Kind = HttpFault::Kind;

class HttpClientTest : public HttpFixture {};

// How many sockets of this process lead to a port.
int SocketsTo(int port) {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    const bool is_connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (is_connected && peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) ++count;
  }
  return count;
}

TEST_F(HttpClientTest, ThreadsShareTheConnectionsThatAreKept) {
  HttpOptions options = Fast();
  options.connections = 12;
  storage_ = *HttpStorage::Create({.http = options});
  const std::string large = Counting(24 * kPart);
  server_.Put("/large", large);
  const auto object = Open("/large");
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&] {
      std::string out(large.size(), '?');
      for (int i = 0; i < 3; ++i) {
        ASSERT_OK(object->ReadAt(0, std::as_writable_bytes(std::span(out))));
        ASSERT_EQ(out, large);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // About one for each connection and thread; 144 if every thread kept its own.
  EXPECT_LE(SocketsTo(server_.port()), 48);
}

TEST_F(HttpClientTest, AForkedChildMakesItsOwnConnections) {
  const auto object = Open();
  ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 1000, .depth = 3}));
  ASSERT_OK(stream->Next());
  ASSERT_OK(Read(*object, 100, 100));
  const int before = server_.connection_count();
  ExpectInChild({}, 0, [&] {
    EXPECT_OK(Read(*object, 7000, 100));
    EXPECT_EQ(read_, bytes_.substr(7000, 100));
    EXPECT_THAT(stream->Next(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("forked")));
    stream.reset();
  });
  EXPECT_EQ(server_.connection_count(), before + 1);
  ASSERT_OK(Read(*object, 200, 100));
  EXPECT_EQ(read_, bytes_.substr(200, 100));
  ASSERT_OK(stream->Next());
  ExpectInChild({}, 0, [&] { storage_.reset(); });
  ASSERT_OK(Read(*object, 300, 100));
}

TEST_F(HttpClientTest, AForkedChildDoesNotWaitForRequestsOfItsParent) {
  HttpOptions options = Fast();
  options.connections = 1;
  storage_ = *HttpStorage::Create({.http = options});
  const auto object = Open();
  server_.Add({.kind = Kind::kStallBefore});
  ASSERT_OK_AND_ASSIGN(const auto stream, object->Stream({.block_bytes = 1000, .depth = 1}));
  while (ranges() == 0) std::this_thread::yield();
  ExpectInChild({}, 0, [&] { EXPECT_OK(Read(*object, 7000, 100)); });
}

TEST_F(HttpClientTest, AReadEndsWithItsFirstError) {
  server_.Put("/large", Counting(60 * kPart));
  const auto object = Open("/large");
  server_.Add({.kind = Kind::kStatus, .times = -1});
  EXPECT_THAT(Read(*object, 0, 60 * kPart), StatusIs(StatusCode::kUnavailable));
  EXPECT_LE(ranges(), 4 * 4);  // tries times connections
  server_.ClearFaults();
  ASSERT_OK(Read(*object, 0, 60 * kPart));
  server_.Forget();
  server_.Add({.kind = Kind::kStatus, .times = -1, .status = 403});
  EXPECT_THAT(Read(*object, 0, 60 * kPart), StatusIs(StatusCode::kPermissionDenied));
  EXPECT_LE(ranges(), 2 * 4);
}

TEST_F(HttpClientTest, WaitingForAConnectionCountsAgainstTheDeadline) {
  HttpOptions options = Fast();
  options.connections = 1;
  options.retry.deadline = milliseconds(300);
  storage_ = *HttpStorage::Create({.http = options});
  const auto object = Open();
  server_.Add({.kind = Kind::kStallBefore, .times = -1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::string out(100, '?');
      EXPECT_THAT(object->ReadAt(0, std::as_writable_bytes(std::span(out))),
                  StatusIs(StatusCode::kDeadlineExceeded));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(ranges(), 4);  // and not one after the other
}

TEST(HttpDateTest, IsReadStrictly) {
  using internal::ParseHttpDate;
  EXPECT_EQ(ParseHttpDate("Thu, 01 Jan 1970 00:00:00 GMT")->time_since_epoch().count(), 0);
  EXPECT_EQ(ParseHttpDate("Sun, 06 Nov 1994 08:49:37 GMT")->time_since_epoch().count(), 784111777);
  for (const char* bad : {"", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
                          "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT",
                          "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 nov 1994 08:49:37 GMT"}) {
    EXPECT_FALSE(ParseHttpDate(bad)) << bad;
  }
}

TEST(HttpDateTest, RetryAfterIsSecondsOrADate) {
  using internal::ParseRetryAfter;
  const char* const now = "Sun, 06 Nov 1994 08:49:37 GMT";
  EXPECT_EQ(ParseRetryAfter("7", now), milliseconds(7'000));
  EXPECT_EQ(ParseRetryAfter("3600", now), milliseconds(60'000));
  EXPECT_EQ(ParseRetryAfter("99999999999999999999", now), milliseconds(60'000));
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:42 GMT", now), milliseconds(5'000));
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:30 GMT", now), milliseconds(0));
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:30 GMT", ""), milliseconds(0));
  for (const char* bad : {"", "soon", "-5", "7s"}) {
    EXPECT_EQ(ParseRetryAfter(bad, now), milliseconds(0)) << bad;
  }
}

}  // namespace
}  // namespace ait
