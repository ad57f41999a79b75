// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/http_storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "data/storage/http_test_support.h"
#include "data/storage/remote_object_internal.h"
#include "data/storage/uri_internal.h"
#include "support/http_fault_server.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Counting;
using ::ait::testing::Fast;
using ::ait::testing::HttpFault;
using ::ait::testing::HttpFaultServer;
using ::ait::testing::HttpFixture;
using ::ait::testing::kPart;
using ::ait::testing::StatusIs;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = HttpFault::Kind;

class HttpStorageTest : public HttpFixture {};

TEST_F(HttpStorageTest, ReadsAnyRange) {
  const auto object = Open();
  EXPECT_EQ(object->info().size_bytes, static_cast<std::int64_t>(bytes_.size()));
  EXPECT_EQ(object->info().url, Url());
  EXPECT_EQ(object->info().version.size(), 34U);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, kPart - 1, kPart, 3 * kPart}) {
    for (const std::size_t length : {std::size_t{1}, std::size_t{512}, kPart, kPart + 1}) {
      ASSERT_OK(Read(*object, offset, length));
      EXPECT_EQ(read_, bytes_.substr(offset, length));
    }
  }
  ASSERT_OK(Read(*object, 0, bytes_.size()));
  EXPECT_EQ(read_, bytes_);
  ASSERT_OK(Read(*object, bytes_.size(), 0));
  EXPECT_THAT(Read(*object, bytes_.size(), 1), StatusIs(StatusCode::kOutOfRange));
}

TEST_F(HttpStorageTest, CutsAtMultiplesOfTheParts) {
  const auto object = Open();
  ASSERT_OK(Read(*object, 1000, 2 * kPart));
  EXPECT_EQ(read_, bytes_.substr(1000, 2 * kPart));
  std::vector<std::string> asked;
  for (const auto& seen : server_.requests()) {
    asked.push_back(seen.headers.at("range"));
    EXPECT_EQ(seen.headers.at("if-match"), object->info().version);
  }
  std::sort(asked.begin(), asked.end());
  EXPECT_EQ(asked, (std::vector<std::string>{"bytes=1000-65535", "bytes=131072-132071",
                                             "bytes=65536-131071"}));
}

TEST_F(HttpStorageTest, KeepsItsConnections) {
  const auto object = Open();
  for (int i = 0; i < 20; ++i) ASSERT_OK(Read(*object, 100, 100));
  EXPECT_EQ(server_.connection_count(), 1);
  for (int i = 0; i < 5; ++i) ASSERT_OK(Read(*object, 0, bytes_.size()));
  EXPECT_LE(server_.connection_count(), 4);
}

TEST_F(HttpStorageTest, EachOfManyReadsHasItsOwnStatus) {
  const auto object = Open();
  std::vector<std::string> texts(40, std::string(100, '?'));
  std::vector<ObjectRead> reads;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    reads.push_back(
        {static_cast<std::int64_t>(i * 5000), std::as_writable_bytes(std::span(texts[i])), {}});
  }
  reads[7].offset_bytes = static_cast<std::int64_t>(bytes_.size()) - 99;
  server_.Add({.kind = Kind::kStatus, .status = 403});
  object->ReadMany(reads);
  int refused = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (i == 7) {
      EXPECT_THAT(reads[i].status, StatusIs(StatusCode::kOutOfRange));
    } else if (reads[i].status.code() == StatusCode::kPermissionDenied) {
      ++refused;
    } else {
      ASSERT_OK(reads[i].status);
      EXPECT_EQ(texts[i], bytes_.substr(i * 5000, 100));
    }
  }
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(ranges(), 39);
}

TEST_F(HttpStorageTest, StreamsInOrderWhateverComesFirst) {
  const auto object = Open();
  for (const int depth : {0, 1, 3, 8}) {
    server_.Add({.kind = Kind::kDelay, .times = 1, .after = 1, .delay = milliseconds(30)});
    ASSERT_OK_AND_ASSIGN(
        auto stream, object->Stream({.offset_bytes = 10, .block_bytes = 10'000, .depth = depth}));
    std::string read;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const ByteView block, stream->Next());
      if (block.is_empty()) break;
      read += block.text();
    }
    EXPECT_EQ(read, bytes_.substr(10));
    ASSERT_OK_AND_ASSIGN(const ByteView after, stream->Next());
    EXPECT_TRUE(after.is_empty());
  }
}

TEST_F(HttpStorageTest, AStreamMayBeLeftWhileTheServerStalls) {
  const auto object = Open();
  server_.Add({.kind = Kind::kStallAt, .times = -1, .after = 2, .at_byte = 10});
  for (int taken = 0; taken < 3; ++taken) {
    ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 1000, .depth = 6}));
    if (taken == 1) std::this_thread::sleep_for(milliseconds(20));
  }
}

TEST_F(HttpStorageTest, AnErrorOfAStreamComesInItsPlaceAndStays) {
  const auto object = Open();
  server_.Add({.kind = Kind::kStatus, .times = -1, .contains = "", .status = 403});
  ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 1000, .depth = 3}));
  EXPECT_THAT(stream->Next(), StatusIs(StatusCode::kPermissionDenied));
  EXPECT_THAT(stream->Next(), StatusIs(StatusCode::kPermissionDenied));
}

TEST_F(HttpStorageTest, ManyThreadsShareOneObject) {
  const auto object = Open();
  server_.Add({.kind = Kind::kStatus, .times = 5});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::string out(kPart + 17, '?');
      for (std::size_t i = 0; i < 20; ++i) {
        const std::size_t offset = (t * 7919 + i * 104729) % (bytes_.size() - out.size());
        ASSERT_OK(object->ReadAt(static_cast<std::int64_t>(offset),
                                 std::as_writable_bytes(std::span(out))));
        ASSERT_EQ(out, bytes_.substr(offset, out.size()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Faults that pass: the bytes are right in the end, after so many requests.
struct Passing {
  const char* name;
  HttpFault fault;
  int requests;
};
class HttpPassingFaultTest : public HttpStorageTest,
                             public ::testing::WithParamInterface<Passing> {};

TEST_P(HttpPassingFaultTest, IsSurvived) {
  StallSoon(GetParam().fault.kind);
  const auto object = Open();
  server_.Add(GetParam().fault);
  ASSERT_OK(Read(*object, 5000, 1000));
  EXPECT_EQ(read_, bytes_.substr(5000, 1000));
  EXPECT_EQ(ranges(), GetParam().requests);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, HttpPassingFaultTest,
    ::testing::Values(
        Passing{"status503", {.kind = Kind::kStatus, .times = 3}, 4},
        Passing{"status500", {.kind = Kind::kStatus, .times = 1, .status = 500}, 2},
        Passing{"status429",
                {.kind = Kind::kStatus, .times = 1, .status = 429, .headers = {"Retry-After: 0"}},
                2},
        Passing{"dropBefore", {.kind = Kind::kDropBefore, .times = 1, .contains = ""}, 2},
        Passing{"dropAt0", {.kind = Kind::kDropAt, .at_byte = 0}, 2},
        Passing{"dropAt1", {.kind = Kind::kDropAt, .at_byte = 1}, 2},
        Passing{"dropAt999", {.kind = Kind::kDropAt, .times = 3, .at_byte = 999}, 4},
        Passing{"truncate", {.kind = Kind::kTruncate, .times = 2, .at_byte = 400}, 3},
        Passing{"stallBefore", {.kind = Kind::kStallBefore}, 2},
        Passing{"stallAt", {.kind = Kind::kStallAt, .at_byte = 500}, 2},
        Passing{"trickle", {.kind = Kind::kTrickle}, 2},
        Passing{"delay", {.kind = Kind::kDelay}, 1},
        Passing{"garbage", {.kind = Kind::kGarbage}, 2},
        Passing{"wrongRange", {.kind = Kind::kWrongRange}, 2},
        Passing{"ignoredRange", {.kind = Kind::kIgnoreRange}, 1}),
    [](const auto& instance) { return std::string(instance.param.name); });

// Faults that stay: a Status that says which, after so many requests.
struct Lasting {
  const char* name;
  HttpFault fault;
  StatusCode code;
  const char* message;
  int requests;
};
class HttpLastingFaultTest : public HttpStorageTest,
                             public ::testing::WithParamInterface<Lasting> {};

TEST_P(HttpLastingFaultTest, IsSaid) {
  StallSoon(GetParam().fault.kind);
  const auto object = Open();
  HttpFault fault = GetParam().fault;
  fault.times = -1;
  server_.Add(fault);
  EXPECT_THAT(Read(*object, 5000, 1000),
              StatusIs(GetParam().code, AllOf(HasSubstr(GetParam().message), HasSubstr(Url()))));
  EXPECT_EQ(ranges(), GetParam().requests);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, HttpLastingFaultTest,
    ::testing::Values(
        Lasting{"status503",
                {.kind = Kind::kStatus},
                StatusCode::kUnavailable,
                "gave up after 4 tries",
                4},
        Lasting{"status404",
                {.kind = Kind::kStatus, .status = 404},
                StatusCode::kNotFound,
                "HTTP 404",
                1},
        Lasting{"status403",
                {.kind = Kind::kStatus, .status = 403},
                StatusCode::kPermissionDenied,
                "HTTP 403",
                1},
        Lasting{"status401",
                {.kind = Kind::kStatus, .status = 401},
                StatusCode::kPermissionDenied,
                "HTTP 401",
                1},
        Lasting{"status412",
                {.kind = Kind::kStatus, .status = 412},
                StatusCode::kAborted,
                "has changed since",
                1},
        Lasting{"status416",
                {.kind = Kind::kStatus, .status = 416},
                StatusCode::kDataLoss,
                "shorter",
                1},
        Lasting{"status400",
                {.kind = Kind::kStatus, .status = 400},
                StatusCode::kFailedPrecondition,
                "HTTP 400",
                1},
        Lasting{"status204",
                {.kind = Kind::kStatus, .status = 204},
                StatusCode::kFailedPrecondition,
                "HTTP 204",
                1},
        // One more: a kept connection that is found closed is replaced at once.
        Lasting{"dropBefore",
                {.kind = Kind::kDropBefore},
                StatusCode::kUnavailable,
                "gave up after 4 tries",
                5},
        Lasting{"dropAt",
                {.kind = Kind::kDropAt, .at_byte = 7},
                StatusCode::kUnavailable,
                "gave up after 4 tries",
                4},
        Lasting{"truncate",
                {.kind = Kind::kTruncate, .at_byte = 400},
                StatusCode::kUnavailable,
                "only 400 came",
                4},
        Lasting{"stall",
                {.kind = Kind::kStallAt, .at_byte = 7},
                StatusCode::kUnavailable,
                "stalled",
                4},
        Lasting{"trickle",
                {.kind = Kind::kTrickle, .delay = milliseconds(20)},
                StatusCode::kUnavailable,
                "stalled",
                4},
        Lasting{"wrongEtag", {.kind = Kind::kWrongEtag}, StatusCode::kAborted, "its etag was", 1},
        Lasting{"noEtag", {.kind = Kind::kNoEtag}, StatusCode::kAborted, "and is none", 1},
        Lasting{"wrongRange",
                {.kind = Kind::kWrongRange},
                StatusCode::kDataLoss,
                "asked for bytes 5000-5999",
                4}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(HttpStorageTest, AChangeInTheMiddleIsNeverAMixture) {
  for (const bool looks_at_match : {true, false}) {
    server_.Put("/a", bytes_);
    const auto object = Open();
    server_.Add({.kind = Kind::kChange, .times = 1, .after = 2});
    if (!looks_at_match) server_.Add({.kind = Kind::kIgnoreMatch, .times = -1, .after = 3});
    EXPECT_THAT(Read(*object, 0, bytes_.size()),
                StatusIs(StatusCode::kAborted, HasSubstr("has changed")));
    server_.ClearFaults();
    EXPECT_THAT(Read(*object, 0, 10), StatusIs(StatusCode::kAborted));
  }
}

TEST_F(HttpStorageTest, AnotherSizeIsAChangeAlsoWithoutAnEtag) {
  server_.Add({.kind = Kind::kNoEtag, .times = -1});
  const auto object = Open();
  EXPECT_EQ(object->info().version, "");
  ASSERT_OK(Read(*object, 5, 10));
  server_.Put("/a", bytes_ + "more");
  EXPECT_THAT(Read(*object, 5, 10), StatusIs(StatusCode::kAborted, HasSubstr("open it again")));
  server_.Put("/a", bytes_.substr(0, 100));
  EXPECT_THAT(Read(*object, 5000, 10), StatusIs(StatusCode::kDataLoss, HasSubstr("shorter")));
  server_.Remove("/a");
  EXPECT_THAT(Read(*object, 5000, 10), StatusIs(StatusCode::kNotFound));
}

TEST_F(HttpStorageTest, CorruptBytesAreDeliveredAsTheyCame) {
  // HTTP has no checksum of its own: that of the sidecar index, or of the format, finds it.
  const auto object = Open();
  server_.Add({.kind = Kind::kCorrupt, .at_byte = 3});
  ASSERT_OK(Read(*object, 5000, 10));
  EXPECT_NE(read_, bytes_.substr(5000, 10));
}

TEST_F(HttpStorageTest, TheDeadlineHoldsForAllTriesTogether) {
  HttpOptions options = Fast();
  options.retry = {.max_tries = 100,
                   .first_wait = milliseconds(20),
                   .max_wait = milliseconds(50),
                   .deadline = milliseconds(300)};
  storage_ = *HttpStorage::Create({.http = options});
  const auto object = Open();
  server_.Add({.kind = Kind::kStatus, .times = -1});
  EXPECT_THAT(Read(*object, 0, 10),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("gave up after 300 ms"), HasSubstr("HTTP 503"))));
  EXPECT_LE(ranges(), 30);
  server_.ClearFaults();
  server_.Add({.kind = Kind::kStallBefore, .times = -1});
  options.stall_timeout = milliseconds(100'000);
  storage_ = *HttpStorage::Create({.http = options});
  EXPECT_THAT(storage_->Open(Url()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("no complete answer came")));
}

TEST_F(HttpStorageTest, AServerThatIsNotThereIsSaid) {
  int port = 0;
  {
    const HttpFaultServer gone;
    port = gone.port();
  }
  EXPECT_THAT(storage_->Open(StrCat("http://127.0.0.1:", port, "/a")),
              StatusIs(StatusCode::kUnavailable, HasSubstr("gave up after 4 tries")));
}

TEST_F(HttpStorageTest, MissingObjectsAreNotFoundAndNotAskedForAgain) {
  EXPECT_THAT(storage_->Open(Url("/b")), StatusIs(StatusCode::kNotFound, HasSubstr("/b")));
  EXPECT_THAT(storage_->Stat(Url("/b")), StatusIs(StatusCode::kNotFound));
  EXPECT_EQ(server_.request_count(), 2);
  ASSERT_OK_AND_ASSIGN(const ObjectInfo info, storage_->Stat(Url("/a")));
  EXPECT_EQ(info.size_bytes, static_cast<std::int64_t>(bytes_.size()));
  EXPECT_THAT(storage_->List(Url("/"), [](const ObjectInfo&) { return OkStatus(); }),
              StatusIs(StatusCode::kUnimplemented));
}

TEST_F(HttpStorageTest, AnEmptyObjectIsOpened) {
  server_.Put("/empty", "");
  const auto object = Open("/empty");
  EXPECT_EQ(object->info().size_bytes, 0);
  ASSERT_OK(Read(*object, 0, 0));
  EXPECT_EQ(ranges(), 0);
  ASSERT_OK_AND_ASSIGN(const ByteView whole, ReadWhole(*object));
  EXPECT_TRUE(whole.is_empty());
}

TEST(HttpServersTest, OnesThatKnowNoHeadAreAskedForAByte) {
  HttpFaultServer server({.knows_head = false});
  server.Put("/a", "0123456789");
  server.Put("/empty", "");
  auto storage = *HttpStorage::Create({.http = Fast()});
  ASSERT_OK_AND_ASSIGN(const ObjectInfo info, storage->Stat(server.url() + "/a"));
  EXPECT_EQ(info.size_bytes, 10);
  EXPECT_FALSE(info.version.empty());
  ASSERT_OK_AND_ASSIGN(const ObjectInfo empty, storage->Stat(server.url() + "/empty"));
  EXPECT_EQ(empty.size_bytes, 0);
}

TEST(HttpServersTest, OnesThatKnowNoRangesAreReadFromTheFront) {
  HttpFaultServer server({.knows_ranges = false});
  const std::string bytes = Counting(10 * kPart);
  server.Put("/a", bytes);
  HttpOptions options = Fast();
  options.max_skip_bytes = 2 * kPart;
  auto storage = *HttpStorage::Create({.http = options});
  ASSERT_OK_AND_ASSIGN(const auto object, storage->Open(server.url() + "/a"));
  std::string read(kPart / 2, '?');
  ASSERT_OK(object->ReadAt(kPart + 5, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, bytes.substr(kPart + 5, kPart / 2));
  EXPECT_THAT(object->ReadAt(3 * kPart, std::as_writable_bytes(std::span(read))),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("the server ignores ranges")));
}

TEST(HttpServersTest, LastModifiedStandsInForAnEtag) {
  HttpFaultServer server(
      {.sends_last_modified = true, .object_headers = {"Date: Wed, 21 Oct 2015 07:29:00 GMT"}});
  server.Put("/a", "0123456789");
  server.Add({.kind = Kind::kNoEtag, .times = -1});
  auto storage = *HttpStorage::Create({.http = Fast()});
  ASSERT_OK_AND_ASSIGN(const auto object, storage->Open(server.url() + "/a"));
  EXPECT_EQ(object->info().version, "Wed, 21 Oct 2015 07:28:00 GMT");
  ASSERT_OK_AND_ASSIGN(const ByteView whole, ReadWhole(*object));
  EXPECT_EQ(whole.text(), "0123456789");
}

TEST(HttpServersTest, ALastModifiedOfThisMinuteIsNoVersion) {
  for (const char* date : {"Date: Wed, 21 Oct 2015 07:28:59 GMT", "Date: now", "X-Date: none"}) {
    HttpFaultServer server({.sends_last_modified = true, .object_headers = {date}});
    server.Put("/a", "0123456789");
    server.Add({.kind = Kind::kNoEtag, .times = -1});
    auto storage = *HttpStorage::Create({.http = Fast()});
    ASSERT_OK_AND_ASSIGN(const auto object, storage->Open(server.url() + "/a"));
    EXPECT_EQ(object->info().version, "") << date;
    ASSERT_OK(ReadWhole(*object));
  }
}

TEST(HttpServersTest, EncodedAnswersAreNotTheObject) {
  for (const bool knows_ranges : {true, false}) {
    HttpFaultServer server(
        {.object_headers = {"Content-Encoding: gzip"}, .knows_ranges = knows_ranges});
    server.Put("/a", "0123456789");
    auto storage = *HttpStorage::Create({.http = Fast()});
    ASSERT_OK_AND_ASSIGN(const auto object, storage->Open(server.url() + "/a"));
    EXPECT_THAT(ReadWhole(*object),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("Content-Encoding gzip")));
  }
}

TEST_F(HttpStorageTest, FollowsRedirectsButNotForEver) {
  server_.Add({.kind = Kind::kRedirect, .times = -1, .contains = "/old", .location = "/a"});
  const auto object = Open("/old");
  ASSERT_OK(Read(*object, 5, 10));
  EXPECT_EQ(read_, bytes_.substr(5, 10));
  EXPECT_EQ(object->info().url, Url("/old"));
  server_.Add({.kind = Kind::kRedirect, .times = -1, .contains = "/loop", .location = "/loop"});
  EXPECT_THAT(storage_->Open(Url("/loop")),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("redirected more than 5 times")));
  server_.Add({.kind = Kind::kRedirect,
               .times = -1,
               .contains = "/file",
               .location = "file:///etc/passwd"});
  EXPECT_THAT(storage_->Open(Url("/file")),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not followed")));
}

TEST_F(HttpStorageTest, HeadersOfTheUserStayWithTheHost) {
  HttpFaultServer other;
  other.Put("/a", bytes_);
  server_.Add(
      {.kind = Kind::kRedirect, .times = -1, .contains = "/away", .location = other.url() + "/a"});
  server_.Add({.kind = Kind::kRedirect, .times = -1, .contains = "/here", .location = "/a"});
  storage_ = *HttpStorage::Create({.http = Fast(), .headers = {"X-Key: s3cret"}});
  ASSERT_OK(storage_->Open(Url("/here")));
  for (const auto& seen : server_.requests()) EXPECT_EQ(seen.headers.at("x-key"), "s3cret");
  ASSERT_OK(storage_->Open(Url("/away")));
  ASSERT_EQ(other.request_count(), 1);
  EXPECT_FALSE(other.requests()[0].headers.contains("x-key"));
}

TEST_F(HttpStorageTest, RefusesWhatIsNoUrlOrOptionOfIt) {
  for (const char* url : {"a", "/a", "s3://b/k", "http://", "http:///a", "file:///a"}) {
    EXPECT_THAT(storage_->Open(url), StatusIs(StatusCode::kInvalidArgument)) << url;
  }
  EXPECT_THAT(storage_->Open("http://me:pa55@host/a"),
              StatusIs(StatusCode::kInvalidArgument, Not(HasSubstr("pa55"))));
  EXPECT_THAT(storage_->Open(Url("/b?X-Amz-Signature=5ecret")),
              StatusIs(StatusCode::kNotFound, Not(HasSubstr("5ecret"))));
  EXPECT_THAT(HttpStorage::Create({.http = {.part_bytes = 1}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(HttpStorage::Create({.http = {.connections = 0}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(HttpStorage::Create({.http = {.retry = {.max_tries = 0}}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(HttpStorage::Create({.headers = {"Authorization: a\r\nHost: b"}}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(HttpStorageTest, OddCharactersOfUrlsArriveAsTheyAre) {
  server_.Put("/dir/a b+\xc3\xa9.tar", "odd");
  ASSERT_OK_AND_ASSIGN(const auto object, storage_->Open(Url("/dir/a b+\xc3\xa9.tar#part")));
  ASSERT_OK_AND_ASSIGN(const ByteView whole, ReadWhole(*object));
  EXPECT_EQ(whole.text(), "odd");
}

TEST(UriTest, EncodesAndDecodes) {
  using namespace std::string_view_literals;
  EXPECT_EQ(internal::PercentEncode("a/b c+%~=\xc3\xa9"sv, "/"), "a/b%20c%2B%25~%3D%C3%A9");
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  ASSERT_OK_AND_ASSIGN(const std::string back,
                       internal::PercentDecode(internal::PercentEncode(all)));
  EXPECT_EQ(back, all);
  ASSERT_OK_AND_ASSIGN(const std::string form,
                       internal::PercentDecode("a+b%2B", internal::Plus::kIsSpace));
  EXPECT_EQ(form, "a b+");
  for (const char* bad : {"%", "%4", "%zz", "a%2"}) {
    EXPECT_THAT(internal::PercentDecode(bad), StatusIs(StatusCode::kInvalidArgument)) << bad;
  }
  EXPECT_EQ(internal::SchemeOf("S3://b"), "s3");
  EXPECT_EQ(internal::SchemeOf("/a/b://c"), "");
  EXPECT_EQ(internal::WithoutSecrets("https://u:p@h/a?b=c"), "https://h/a?...");
}

TEST(ContentRangeTest, IsReadStrictly) {
  ASSERT_OK_AND_ASSIGN(const internal::ContentRange range,
                       internal::ParseContentRange("bytes 5-9/10"));
  EXPECT_EQ(range.first, 5);
  EXPECT_EQ(range.last, 9);
  EXPECT_EQ(range.size, 10);
  ASSERT_OK_AND_ASSIGN(const internal::ContentRange none,
                       internal::ParseContentRange("bytes */10"));
  EXPECT_EQ(none.first, -1);
  for (const char* bad : {"", "bytes", "bytes 5-9", "bytes 9-5/10", "bytes -5-9/10", "bytes a-b/c",
                          "5-9/10", "bytes 5-9/99999999999999999999", "bytes 5-9/10x"}) {
    EXPECT_FALSE(internal::ParseContentRange(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace ait
