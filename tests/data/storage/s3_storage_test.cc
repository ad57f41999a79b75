// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/s3_storage.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/http_fault_server.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::HttpFault;
using ::ait::testing::HttpFaultServer;
using ::ait::testing::HttpFaultServerOptions;
using ::ait::testing::StatusIs;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = HttpFault::Kind;

constexpr char kKey[] = "AKIDEXAMPLE";
constexpr char kSecret[] = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

std::string Counting(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251 + i / 70001);
  return text;
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class S3StorageTest : public ::testing::Test {
 protected:
  static HttpFaultServerOptions Signed() {
    return {.access_key_id = kKey, .secret_access_key = kSecret, .region = "eu-west-1"};
  }
  static S3StorageOptions OptionsFor(const HttpFaultServer& server) {
    return {
        .region = "eu-west-1",
        .endpoint = server.url(),
        .credentials = *FixedAwsCredentials({.access_key_id = kKey, .secret_access_key = kSecret}),
        .environment = {},
        .http = {.part_bytes = 64 * 1024,
                 .connections = 4,
                 .stall_timeout = milliseconds(10'000),
                 .retry = {.max_tries = 4,
                           .first_wait = milliseconds(1),
                           .max_wait = milliseconds(4),
                           .deadline = milliseconds(60'000)}}};
  }
  void SetUp() override { storage_ = *S3Storage::Create(OptionsFor(server_)); }

  StatusOr<std::string> Read(const S3Storage& storage, const std::string& url) {
    AIT_ASSIGN_OR_RETURN(const auto object, storage.Open(url));
    AIT_ASSIGN_OR_RETURN(const ByteView whole, ReadWhole(*object));
    return std::string(whole.text());
  }
  StatusOr<std::vector<std::string>> List(const S3Storage& storage, const std::string& url) {
    std::vector<std::string> urls;
    AIT_RETURN_IF_ERROR(storage.List(url, [&](const ObjectInfo& info) {
      urls.push_back(info.url);
      return OkStatus();
    }));
    return urls;
  }

  HttpFaultServer server_{Signed()};
  std::shared_ptr<S3Storage> storage_;
};

TEST_F(S3StorageTest, ReadsByRangesThatAreSigned) {
  const std::string bytes = Counting(200'000);
  server_.Put("/bucket/dir/a.tar", bytes);
  ASSERT_OK_AND_ASSIGN(const auto object, storage_->Open("s3://bucket/dir/a.tar"));
  EXPECT_EQ(object->info().url, "s3://bucket/dir/a.tar");
  EXPECT_EQ(object->info().size_bytes, 200'000);
  std::string read(100'000, '?');
  ASSERT_OK(object->ReadAt(50'000, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, bytes.substr(50'000, 100'000));
  EXPECT_EQ(server_.request_count(), 1 + 3);
  ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 30'000, .depth = 3}));
  std::string streamed;
  while (true) {
    ASSERT_OK_AND_ASSIGN(const ByteView block, stream->Next());
    if (block.is_empty()) break;
    streamed += block.text();
  }
  EXPECT_EQ(streamed, bytes);
}

TEST_F(S3StorageTest, NoCharacterOfAKeyIsSpecial) {
  for (const std::string key :
       {"a b+c=d%41&e", "k\xc3\xa4se/\xe6\x97\xa5\xe6\x9c\xac.tar", "a//b", "?x=y#z", "~-_.!*'()",
        "a;b:c@d,e$f[g]", "\x01\x7f\"<>\\^`{|}", "x/./y/../z", "/a", "a/", "%"}) {
    const std::string url = "s3://bucket/" + key;
    ASSERT_OK(storage_->Put(url, BytesOf("bytes of " + key))) << key;
    EXPECT_EQ(server_.Get("/bucket/" + key), "bytes of " + key) << key;
    ASSERT_OK_AND_ASSIGN(const std::string read, Read(*storage_, url));
    EXPECT_EQ(read, "bytes of " + key);
    ASSERT_OK_AND_ASSIGN(const auto urls, List(*storage_, "s3://bucket"));
    EXPECT_THAT(urls, ElementsAre(url));
    ASSERT_OK(storage_->Remove(url));
    EXPECT_EQ(server_.Get("/bucket/" + key), "");
  }
}

TEST_F(S3StorageTest, WrongKeysAreRefusedAndNotShown) {
  server_.Put("/bucket/a", "x");
  S3StorageOptions options = OptionsFor(server_);
  options.credentials = *FixedAwsCredentials({.access_key_id = kKey, .secret_access_key = "wr0ng"});
  ASSERT_OK_AND_ASSIGN(const auto wrong, S3Storage::Create(options));
  EXPECT_THAT(
      wrong->Open("s3://bucket/a"),
      StatusIs(StatusCode::kPermissionDenied,
               AllOf(HasSubstr("SignatureDoesNotMatch"), HasSubstr("keys are those of the program"),
                     Not(HasSubstr("wr0ng")), Not(HasSubstr(kKey)))));
  options.credentials =
      *FixedAwsCredentials({.access_key_id = "AKOTHER", .secret_access_key = kSecret});
  ASSERT_OK_AND_ASSIGN(const auto unknown, S3Storage::Create(options));
  EXPECT_THAT(unknown->Stat("s3://bucket/a"),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("InvalidAccessKeyId")));
  options.credentials = AnonymousAwsCredentials();
  ASSERT_OK_AND_ASSIGN(const auto nobody, S3Storage::Create(options));
  EXPECT_THAT(nobody->Open("s3://bucket/a"),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("anonymous")));
  server_.Add({.kind = Kind::kStatus,
               .times = -1,
               .status = 403,
               .body = StrCat("<Error><Code>AccessDenied</Code><Message>", kKey, " may not; ",
                              kSecret, "</Message></Error>")});
  EXPECT_THAT(
      storage_->Open("s3://bucket/a"),
      StatusIs(StatusCode::kPermissionDenied,
               AllOf(HasSubstr("(a key) may not"), Not(HasSubstr(kSecret)), Not(HasSubstr(kKey)))));
}

TEST_F(S3StorageTest, AnonymousRequestsAreNotSigned) {
  HttpFaultServer open;
  open.Put("/bucket/a", "x");
  S3StorageOptions options = OptionsFor(open);
  options.credentials = AnonymousAwsCredentials();
  ASSERT_OK_AND_ASSIGN(const auto storage, S3Storage::Create(options));
  ASSERT_OK_AND_ASSIGN(const std::string read, Read(*storage, "s3://bucket/a"));
  EXPECT_EQ(read, "x");
  for (const auto& seen : open.requests()) EXPECT_FALSE(seen.headers.contains("authorization"));
}

TEST_F(S3StorageTest, SessionTokensAreSentAndSigned) {
  HttpFaultServerOptions with_token = Signed();
  with_token.session_token = "tok/en+==";
  HttpFaultServer server(with_token);
  server.Put("/bucket/a", "x");
  S3StorageOptions options = OptionsFor(server);
  options.credentials = *FixedAwsCredentials(
      {.access_key_id = kKey, .secret_access_key = kSecret, .session_token = "tok/en+=="});
  ASSERT_OK_AND_ASSIGN(const auto storage, S3Storage::Create(options));
  ASSERT_OK(Read(*storage, "s3://bucket/a"));
  EXPECT_THAT(storage_->name(), HasSubstr("127.0.0.1"));
}

TEST_F(S3StorageTest, KeysThatHaveEndedAreAskedForAnew) {
  HttpFaultServerOptions with_token = Signed();
  with_token.session_token = "second";
  int given = 0;
  with_token.instance_credentials = [&given] {
    return StrCat("{\"Code\":\"Success\",\"AccessKeyId\":\"", kKey, "\",\"SecretAccessKey\":\"",
                  kSecret, "\",\"Token\":\"", ++given == 1 ? "first" : "second",
                  "\",\"Expiration\":\"2999-01-01T00:00:00Z\"}");
  };
  HttpFaultServer server(with_token);
  server.Put("/bucket/a", "x");
  S3StorageOptions options = OptionsFor(server);
  options.credentials = nullptr;
  options.environment = {.metadata_endpoint = server.url()};
  ASSERT_OK_AND_ASSIGN(const auto storage, S3Storage::Create(options));
  ASSERT_OK_AND_ASSIGN(const std::string read, Read(*storage, "s3://bucket/a"));
  EXPECT_EQ(read, "x");
  EXPECT_EQ(given, 2);
}

TEST_F(S3StorageTest, ListsPageByPageInOrder) {
  HttpFaultServerOptions small = Signed();
  small.list_page = 3;
  for (const bool encodes : {true, false}) {
    small.list_encodes_urls = encodes;
    HttpFaultServer server(small);
    for (int i = 0; i < 10; ++i)
      server.Put(StrCat("/bucket/train/shard &<", i, ">.tar"),
                 std::string(static_cast<std::size_t>(i), 'x'));
    server.Put("/bucket/train/", "");
    server.Put("/bucket/train-other/a", "x");
    server.Put("/bucket/z", "x");
    ASSERT_OK_AND_ASSIGN(const auto storage, S3Storage::Create(OptionsFor(server)));
    std::vector<ObjectInfo> found;
    ASSERT_OK(storage->List("s3://bucket/train", [&](const ObjectInfo& info) {
      found.push_back(info);
      return OkStatus();
    }));
    ASSERT_EQ(found.size(), 10U);
    for (int i = 0; i < 10; ++i) {
      const ObjectInfo& info = found[static_cast<std::size_t>(i)];
      EXPECT_EQ(info.url, StrCat("s3://bucket/train/shard &<", i, ">.tar"));
      EXPECT_EQ(info.size_bytes, i);
      ASSERT_OK_AND_ASSIGN(const ObjectInfo stat, storage->Stat(info.url));
      EXPECT_EQ(stat.version, info.version);
    }
    ASSERT_OK_AND_ASSIGN(const auto all, List(*storage, "s3://bucket"));
    EXPECT_EQ(all.size(), 12U);
    EXPECT_THAT(List(*storage, "s3://bucket/gone/"), StatusIs(StatusCode::kNotFound));
    EXPECT_THAT(
        storage->List("s3://bucket", [](const ObjectInfo&) { return CancelledError("enough"); }),
        StatusIs(StatusCode::kCancelled));
  }
}

TEST_F(S3StorageTest, AListThatIsCutOrOutOfOrderIsAnError) {
  server_.Put("/bucket/a", "x");
  server_.Add({.kind = Kind::kTruncate, .times = 1, .contains = "list-type", .at_byte = 150});
  ASSERT_OK_AND_ASSIGN(const auto urls, List(*storage_, "s3://bucket"));
  EXPECT_EQ(urls.size(), 1U);
  server_.Add({.kind = Kind::kTruncate, .times = -1, .contains = "list-type", .at_byte = 150});
  EXPECT_THAT(List(*storage_, "s3://bucket"), StatusIs(StatusCode::kDataLoss, HasSubstr("XML")));
  server_.ClearFaults();
  server_.Add({.kind = Kind::kStatus,
               .times = -1,
               .contains = "list-type",
               .status = 200,
               .body = "<ListBucketResult><Contents><Key>b</Key><Size>1</Size></Contents>"
                       "<Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>"});
  EXPECT_THAT(List(*storage_, "s3://bucket"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("order")));
  server_.Add({.kind = Kind::kStatus,
               .times = -1,
               .contains = "list-type",
               .status = 200,
               .body = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
                       "</NextContinuationToken></ListBucketResult>"});
  EXPECT_THAT(List(*storage_, "s3://bucket"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("again and again")));
  const auto to = [](const std::string& token) {
    return "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" + token +
           "</NextContinuationToken></ListBucketResult>";
  };
  server_.Add({.times = -1, .contains = "list-type", .status = 200, .body = to("b")});
  server_.Add({.times = -1, .contains = "continuation-token=b", .status = 200, .body = to("c")});
  EXPECT_THAT(List(*storage_, "s3://bucket"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("pages without an object")));
}

TEST_F(S3StorageTest, AnEncodingThatIsStoredWithAnObjectIsNoneOfTheAnswer) {
  HttpFaultServerOptions options = Signed();
  options.object_headers = {"Content-Encoding: gzip"};
  HttpFaultServer server(options);
  server.Put("/bucket/a", "0123456789");
  const auto storage = *S3Storage::Create(OptionsFor(server));
  ASSERT_OK_AND_ASSIGN(const std::string read, Read(*storage, "s3://bucket/a"));
  EXPECT_EQ(read, "0123456789");
}

TEST_F(S3StorageTest, SlowDownIsWaitedForAsLongAsItSays) {
  server_.Put("/bucket/a", "x");
  S3StorageOptions options = OptionsFor(server_);
  options.http.retry.deadline = milliseconds(5'000);
  storage_ = *S3Storage::Create(options);
  server_.Add({.times = -1,
               .method = "GET",
               .body = "<Error><Code>SlowDown</Code><Message>m</Message></Error>",
               .headers = {"Retry-After: 30"}});
  EXPECT_THAT(Read(*storage_, "s3://bucket/a"), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(server_.request_count(), 2);  // HEAD, and a GET: the next one would come too late
}

TEST_F(S3StorageTest, RegionsThatTheServiceNamesAreUsed) {
  server_.Put("/bucket/a", "x");
  S3StorageOptions options = OptionsFor(server_);
  options.region = "us-east-1";
  ASSERT_OK_AND_ASSIGN(const auto storage, S3Storage::Create(options));
  server_.Add({.kind = Kind::kStatus,
               .times = 1,
               .status = 301,
               .headers = {"x-amz-bucket-region: eu-west-1"}});
  ASSERT_OK(Read(*storage, "s3://bucket/a"));
  ASSERT_OK_AND_ASSIGN(const auto other, S3Storage::Create(options));
  server_.Add(
      {.kind = Kind::kStatus,
       .times = 1,
       .method = "GET",
       .status = 400,
       .body =
           "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"});
  ASSERT_OK_AND_ASSIGN(const auto urls, List(*other, "s3://bucket"));
  EXPECT_EQ(urls.size(), 1U);
}

TEST_F(S3StorageTest, BucketsMayBeHosts) {
  HttpFaultServerOptions hosts = Signed();
  hosts.bucket_host_suffix = "localhost";
  HttpFaultServer server(hosts);
  server.Put("/bucket/a b", "x");
  S3StorageOptions options = OptionsFor(server);
  options.endpoint = StrCat("http://localhost:", server.port(), "/");
  options.addressing = S3Addressing::kVirtual;
  ASSERT_OK_AND_ASSIGN(const auto storage, S3Storage::Create(options));
  ASSERT_OK_AND_ASSIGN(const std::string read, Read(*storage, "s3://bucket/a b"));
  EXPECT_EQ(read, "x");
  ASSERT_OK_AND_ASSIGN(const auto urls, List(*storage, "s3://bucket/"));
  EXPECT_EQ(urls.size(), 1U);
  for (const auto& seen : server.requests())
    EXPECT_THAT(seen.headers.at("host"), HasSubstr("bucket.localhost"));
}

TEST_F(S3StorageTest, LargeObjectsAreWrittenInParts) {
  const std::string bytes = Counting((std::size_t{12} << 20) + 5);
  server_.Add({.kind = Kind::kStatus, .times = 2, .method = "PUT", .contains = "partNumber"});
  server_.Add({.kind = Kind::kDropBefore, .times = 1, .contains = "uploads"});
  ASSERT_OK(storage_->Put("s3://bucket/big one", BytesOf(bytes)));
  EXPECT_EQ(server_.Get("/bucket/big one"), bytes);
  int parts = 0;
  for (const auto& seen : server_.requests()) {
    parts += seen.target.find("partNumber") != std::string::npos && seen.status == 200 ? 1 : 0;
  }
  EXPECT_EQ(parts, 3);
}

TEST_F(S3StorageTest, AFailedUploadLeavesNothing) {
  server_.Put("/bucket/big", "old");
  server_.Add({.kind = Kind::kStatus,
               .times = -1,
               .method = "PUT",
               .contains = "partNumber=2",
               .status = 403});
  const std::string bytes = Counting(std::size_t{12} << 20);
  EXPECT_THAT(storage_->Put("s3://bucket/big", BytesOf(bytes)),
              StatusIs(StatusCode::kPermissionDenied));
  EXPECT_EQ(server_.Get("/bucket/big"), "old");
  EXPECT_EQ(server_.requests().back().method, "DELETE");
  server_.ClearFaults();
  server_.Add({.kind = Kind::kStatus,
               .times = 1,
               .method = "POST",
               .contains = "?uploadId",
               .status = 200,
               .body = "<Error><Code>InternalError</Code></Error>"});
  ASSERT_OK(storage_->Put("s3://bucket/big", BytesOf(bytes)));
  EXPECT_EQ(server_.Get("/bucket/big"), bytes);
}

TEST_F(S3StorageTest, AnUploadEndsWithThePartThatIsRefused) {
  S3StorageOptions options = OptionsFor(server_);
  options.http.connections = 1;
  storage_ = *S3Storage::Create(options);
  server_.Add({.kind = Kind::kStatus, .times = -1, .contains = "partNumber", .status = 403});
  EXPECT_THAT(storage_->Put("s3://bucket/big", BytesOf(Counting(std::size_t{26} << 20))),
              StatusIs(StatusCode::kPermissionDenied));
  EXPECT_EQ(server_.request_count(), 3);  // its beginning, one part, its end
}

struct Refusal {
  const char* name;
  int status;
  const char* code;
  StatusCode expected;
  int requests;  // of a read
};
class S3RefusalTest : public S3StorageTest, public ::testing::WithParamInterface<Refusal> {};

TEST_P(S3RefusalTest, IsSaid) {
  const Refusal& refusal = GetParam();
  server_.Put("/bucket/a", "0123456789");
  ASSERT_OK_AND_ASSIGN(const auto object, storage_->Open("s3://bucket/a"));
  server_.Forget();
  server_.Add(
      {.kind = Kind::kStatus,
       .times = -1,
       .status = refusal.status,
       .body = StrCat("<Error><Code>", refusal.code, "</Code><Message>m</Message></Error>")});
  std::string read(4, '?');
  EXPECT_THAT(
      object->ReadAt(0, std::as_writable_bytes(std::span(read))),
      StatusIs(refusal.expected, AllOf(HasSubstr("s3://bucket/a"), HasSubstr(refusal.code))));
  EXPECT_EQ(server_.request_count(), refusal.requests);
}

INSTANTIATE_TEST_SUITE_P(
    Codes, S3RefusalTest,
    ::testing::Values(
        Refusal{"slowDown", 503, "SlowDown", StatusCode::kUnavailable, 4},
        Refusal{"internal", 500, "InternalError", StatusCode::kUnavailable, 4},
        Refusal{"timeout", 400, "RequestTimeout", StatusCode::kUnavailable, 4},
        Refusal{"denied", 403, "AccessDenied", StatusCode::kPermissionDenied, 1},
        Refusal{"skewed", 403, "RequestTimeTooSkewed", StatusCode::kPermissionDenied, 1},
        Refusal{"expired", 400, "ExpiredToken", StatusCode::kPermissionDenied, 1},
        Refusal{"noKey", 404, "NoSuchKey", StatusCode::kNotFound, 1},
        Refusal{"noBucket", 404, "NoSuchBucket", StatusCode::kNotFound, 1},
        Refusal{"changed", 412, "PreconditionFailed", StatusCode::kAborted, 1},
        Refusal{"shorter", 416, "InvalidRange", StatusCode::kDataLoss, 1},
        Refusal{"moved", 307, "TemporaryRedirect", StatusCode::kFailedPrecondition, 1}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(S3StorageTest, AChangedObjectIsAnErrorAlsoWhereIfMatchIsIgnored) {
  for (const bool ignores : {false, true}) {
    server_.Put("/bucket/a", "0123456789");
    ASSERT_OK_AND_ASSIGN(const auto object, storage_->Open("s3://bucket/a"));
    server_.Put("/bucket/a", "abcdefghij");
    if (ignores) server_.Add({.kind = Kind::kIgnoreMatch, .times = -1});
    EXPECT_THAT(ReadWhole(*object), StatusIs(StatusCode::kAborted, HasSubstr("has changed")));
  }
}

TEST_F(S3StorageTest, SettingsComeFromOptionsThenEnvironmentThenProfile) {
  S3StorageOptions options = {.credentials = AnonymousAwsCredentials(), .environment = {}};
  ASSERT_OK_AND_ASSIGN(auto storage, S3Storage::Create(options));
  EXPECT_EQ(storage->name(), "S3 of AWS, us-east-1");
  options.environment = {.region = "eu-central-1"};
  ASSERT_OK_AND_ASSIGN(storage, S3Storage::Create(options));
  EXPECT_EQ(storage->name(), "S3 of AWS, eu-central-1");
  options.environment.endpoint = "http://minio:80/base/";
  ASSERT_OK_AND_ASSIGN(storage, S3Storage::Create(options));
  EXPECT_EQ(storage->name(), "S3 at http://minio/base");
  options.endpoint = "HTTPS://here:443";
  ASSERT_OK_AND_ASSIGN(storage, S3Storage::Create(options));
  EXPECT_EQ(storage->name(), "S3 at https://here");
}

TEST_F(S3StorageTest, RefusesWhatIsNoUrlOrOptionOfIt) {
  for (const char* url : {"s3://bucket", "s3://bucket/", "s3:///a", "s3://b c/a", "http://bucket/a",
                          "bucket/a", "s3://../a"}) {
    EXPECT_THAT(storage_->Open(url), StatusIs(StatusCode::kInvalidArgument)) << url;
  }
  EXPECT_THAT(storage_->Open("s3://bucket/" + std::string(1025, 'a')),
              StatusIs(StatusCode::kInvalidArgument));
  S3StorageOptions options = OptionsFor(server_);
  options.region = "eu west";
  EXPECT_THAT(S3Storage::Create(options), StatusIs(StatusCode::kInvalidArgument));
  options = OptionsFor(server_);
  options.endpoint = "minio:9000";
  EXPECT_THAT(S3Storage::Create(options), StatusIs(StatusCode::kInvalidArgument));
  options.endpoint = "http://me:pa55@minio";
  EXPECT_THAT(S3Storage::Create(options),
              StatusIs(StatusCode::kInvalidArgument, Not(HasSubstr("pa55"))));
}

}  // namespace
}  // namespace ait
