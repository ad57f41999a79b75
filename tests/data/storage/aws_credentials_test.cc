// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/aws_credentials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "data/storage/instance_credentials_internal.h"
#include "support/http_fault_server.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::HttpFault;
using ::ait::testing::HttpFaultServer;
using ::ait::testing::StatusIs;
using std::chrono::milliseconds;
using std::chrono::system_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

AwsEnvironment EnvironmentOf(const std::map<std::string, std::string>& variables) {
  return AwsEnvironment::From([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? AwsEnvironment::Value() : found->second;
  });
}

class AwsCredentialsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    home_ = ::testing::TempDir() + "/ait_aws_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(home_);
    std::filesystem::create_directories(home_ + "/.aws");
  }
  void TearDown() override { std::filesystem::remove_all(home_); }
  void Write(const std::string& file, const std::string& text) {
    std::ofstream(home_ + "/.aws/" + file) << text;
  }
  AwsCredentialOptions Options(std::map<std::string, std::string> variables = {}) {
    variables.try_emplace("HOME", home_);
    variables.try_emplace("AWS_EC2_METADATA_DISABLED", "true");
    return {.environment = EnvironmentOf(variables)};
  }
  std::string home_;
};

TEST_F(AwsCredentialsTest, TheEnvironmentComesFirst) {
  Write("credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = fs\n");
  ASSERT_OK_AND_ASSIGN(auto source, FindAwsCredentials(Options({{"AWS_ACCESS_KEY_ID", "ENV"},
                                                                {"AWS_SECRET_ACCESS_KEY", "es"},
                                                                {"AWS_SESSION_TOKEN", "et"}})));
  ASSERT_OK_AND_ASSIGN(const AwsCredentials keys, source->Get());
  EXPECT_EQ(keys.access_key_id, "ENV");
  EXPECT_EQ(keys.secret_access_key, "es");
  EXPECT_EQ(keys.session_token, "et");
  EXPECT_FALSE(source->Forget());
}

TEST_F(AwsCredentialsTest, AProfileThatTheProgramNamesGoesBeforeTheEnvironment) {
  Write("credentials", "[p]\naws_access_key_id = FILE\naws_secret_access_key = fs\n");
  AwsCredentialOptions options =
      Options({{"AWS_ACCESS_KEY_ID", "ENV"}, {"AWS_SECRET_ACCESS_KEY", "es"}});
  options.profile = "p";
  ASSERT_OK_AND_ASSIGN(auto source, FindAwsCredentials(options));
  ASSERT_OK_AND_ASSIGN(const AwsCredentials keys, source->Get());
  EXPECT_EQ(keys.access_key_id, "FILE");
}

TEST_F(AwsCredentialsTest, ReadsTheFilesAsOthersWriteThem) {
  Write("config",
        "# a comment\n[default]\nregion=eu-west-1\noutput = json\n\n[profile train]\r\n"
        "region = us-west-2\r\nendpoint_url = http://minio:9000\r\ns3 =\r\n"
        "  max_concurrent_requests = 20\r\n");
  Write("credentials",
        "[default]\naws_access_key_id=D\naws_secret_access_key=d=/+\n; another\n[ train ]\n"
        "aws_access_key_id = T\naws_secret_access_key = t\naws_session_token = tok==\n");
  ASSERT_OK_AND_ASSIGN(const AwsProfile base, ReadAwsProfile(Options()));
  EXPECT_EQ(base.credentials.access_key_id, "D");
  EXPECT_EQ(base.credentials.secret_access_key, "d=/+");
  EXPECT_EQ(base.region, "eu-west-1");
  ASSERT_OK_AND_ASSIGN(const AwsProfile train, ReadAwsProfile(Options({{"AWS_PROFILE", "train"}})));
  EXPECT_EQ(train.credentials.access_key_id, "T");
  EXPECT_EQ(train.credentials.session_token, "tok==");
  EXPECT_EQ(train.region, "us-west-2");
  EXPECT_EQ(train.endpoint, "http://minio:9000");
}

TEST_F(AwsCredentialsTest, FilesMayLieElsewhere) {
  Write("other", "[default]\naws_access_key_id=O\naws_secret_access_key=o\n");
  ASSERT_OK_AND_ASSIGN(
      const AwsProfile profile,
      ReadAwsProfile(Options({{"AWS_SHARED_CREDENTIALS_FILE", home_ + "/.aws/other"},
                              {"AWS_CONFIG_FILE", home_ + "/none"}})));
  EXPECT_EQ(profile.credentials.access_key_id, "O");
}

TEST_F(AwsCredentialsTest, SaysWhatIsMissingAndNoSecrets) {
  EXPECT_THAT(FindAwsCredentials(Options()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("AWS_ACCESS_KEY_ID")));
  EXPECT_THAT(FindAwsCredentials(Options({{"AWS_PROFILE", "gone"}})),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
  EXPECT_THAT(FindAwsCredentials(Options({{"AWS_SECRET_ACCESS_KEY", "5ecret"}})),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("no access key id"), Not(HasSubstr("5ecret")))));
  EXPECT_THAT(FindAwsCredentials(
                  Options({{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "5ecret\n"}})),
              StatusIs(StatusCode::kInvalidArgument, Not(HasSubstr("5ecret"))));
  Write("credentials", "[default]\n5ecret\n");
  EXPECT_THAT(
      FindAwsCredentials(Options()),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("line 2"), Not(HasSubstr("5ecret")))));
  Write("credentials", "[default\n");
  EXPECT_THAT(FindAwsCredentials(Options()), StatusIs(StatusCode::kInvalidArgument));
  Write("credentials", "");
  Write("config", "[default]\ncredential_process = /bin/helper\n");
  EXPECT_THAT(FindAwsCredentials(Options()),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("credential_process")));
}

TEST_F(AwsCredentialsTest, FixedAndAnonymousOnes) {
  ASSERT_OK_AND_ASSIGN(auto fixed,
                       FixedAwsCredentials({.access_key_id = "A", .secret_access_key = "s"}));
  ASSERT_OK_AND_ASSIGN(const AwsCredentials keys, fixed->Get());
  EXPECT_EQ(keys.access_key_id, "A");
  EXPECT_THAT(FixedAwsCredentials({.access_key_id = "A"}), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const AwsCredentials nobody, AnonymousAwsCredentials()->Get());
  EXPECT_TRUE(nobody.is_anonymous());
}

std::string UtcAfter(std::chrono::seconds time) {
  const std::time_t at = system_clock::to_time_t(system_clock::now() + time);
  std::tm parts = {};
  gmtime_r(&at, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string InstanceJson(int number, std::chrono::seconds lasts) {
  return "{\"Code\":\"Success\",\"AccessKeyId\":\"I" + std::to_string(number) +
         "\",\"SecretAccessKey\":\"i\",\"Token\":\"it\",\"Expiration\":\"" + UtcAfter(lasts) +
         "\"}";
}

class InstanceCredentialsTest : public AwsCredentialsTest {
 protected:
  std::shared_ptr<AwsCredentialSource> Source(const HttpFaultServer& server) {
    AwsCredentialOptions options = {
        .environment = EnvironmentOf(
            {{"HOME", home_}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url() + "/"}}),
        .metadata_timeout = milliseconds(500)};
    return *FindAwsCredentials(options);
  }
  std::atomic<int> given_ = 0;
};

TEST_F(InstanceCredentialsTest, AreAskedForOnceWhileTheyLast) {
  const HttpFaultServer server(
      {.instance_credentials = [this] { return InstanceJson(++given_, std::chrono::hours(6)); }});
  const auto source = Source(server);
  EXPECT_EQ(server.request_count(), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const AwsCredentials keys, source->Get());
    EXPECT_EQ(keys.access_key_id, "I1");
    EXPECT_EQ(keys.session_token, "it");
    ASSERT_TRUE(keys.expires);
  }
  EXPECT_EQ(server.request_count(), 3);  // token, role, keys
  EXPECT_EQ(server.requests()[0].method, "PUT");
  EXPECT_TRUE(source->Forget());
  ASSERT_OK_AND_ASSIGN(const AwsCredentials keys, source->Get());
  EXPECT_EQ(keys.access_key_id, "I2");
}

TEST_F(InstanceCredentialsTest, AreAskedForAgainOnceTheyHaveEnded) {
  const HttpFaultServer server({.instance_credentials = [this] {
    return InstanceJson(++given_, std::chrono::seconds(-5));
  }});
  const auto source = Source(server);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const AwsCredentials keys, source->Get());
    EXPECT_EQ(keys.access_key_id, "I" + std::to_string(i));
  }
}

TEST_F(InstanceCredentialsTest, OldOnesServeWhileTheServiceIsAway) {
  HttpFaultServer server(
      {.instance_credentials = [this] { return InstanceJson(++given_, std::chrono::minutes(5)); }});
  const auto source = Source(server);
  ASSERT_OK(source->Get());
  source->Forget();
  server.Add({.kind = HttpFault::Kind::kStatus, .times = -1, .status = 404});
  ASSERT_OK_AND_ASSIGN(const AwsCredentials keys, source->Get());
  EXPECT_EQ(keys.access_key_id, "I1");
}

TEST_F(InstanceCredentialsTest, AnInstanceWithoutARoleIsSaid) {
  const HttpFaultServer server;
  EXPECT_THAT(Source(server)->Get(),
              StatusIs(StatusCode::kNotFound, HasSubstr("anonymous access")));
}

TEST_F(InstanceCredentialsTest, ASilentServiceIsGivenUpSoon) {
  HttpFaultServer server;
  server.Add({.kind = HttpFault::Kind::kStallBefore, .times = -1});
  const auto status = Source(server)->Get().status();
  EXPECT_FALSE(status.ok());
  EXPECT_LE(server.request_count(), 3);
}

TEST_F(InstanceCredentialsTest, GarbageIsSaid) {
  for (const char* json : {"", "[]", "{", "{\"Code\":\"Failed\"}", "{\"AccessKeyId\":\"A\"}",
                           "{\"AccessKeyId\":1,\"SecretAccessKey\":\"5ecret\"}",
                           "{\"AccessKeyId\":\"A\\n\",\"SecretAccessKey\":\"5ecret\"}"}) {
    const Status status = internal::ParseInstanceCredentials(json).status();
    EXPECT_FALSE(status.ok()) << json;
    EXPECT_THAT(Message(status), Not(HasSubstr("5ecret")));
  }
}

TEST(UtcTimeTest, IsRead) {
  EXPECT_EQ(internal::ParseUtcTime("2013-05-24T00:00:00Z"), system_clock::from_time_t(1369353600));
  EXPECT_GT(*internal::ParseUtcTime("9999-12-31T23:59:59Z"), system_clock::now());
  for (const char* bad : {"", "0001-01-01T00:00:00Z", "2013-05-24", "2013-05-24T00:00:00",
                          "2013-05-24 00:00:00Z", "2013-0a-24T00:00:00Z"}) {
    EXPECT_FALSE(internal::ParseUtcTime(bad)) << bad;
  }
}

TEST(AwsEnvironmentTest, EmptyCountsAsUnset) {
  const AwsEnvironment environment = EnvironmentOf({{"AWS_ACCESS_KEY_ID", ""},
                                                    {"AWS_DEFAULT_REGION", "a"},
                                                    {"AWS_ENDPOINT_URL", "b"},
                                                    {"AWS_ENDPOINT_URL_S3", "c"}});
  EXPECT_FALSE(environment.access_key_id);
  EXPECT_EQ(environment.region, "a");
  EXPECT_EQ(environment.endpoint, "c");
}

}  // namespace
}  // namespace ait
