// SPDX-License-Identifier: Apache-2.0
// S3Storage against a server that others wrote. Skipped where none is found: set AIT_TEST_S3_SERVER to
// the endpoint of one that runs, with keys that may create objects in the bucket of AIT_TEST_S3_BUCKET
// (default "ait-test"); or install localbucket (PyPI) so that it is found on PATH.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/storage/s3_storage.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::StatusIs;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string OnPath(const std::string& program) {
  const std::string path = Variable("PATH");
  for (std::size_t at = 0; at < path.size();) {
    const std::string folder = path.substr(at, path.find(':', at) - at);
    at += folder.size() + 1;
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return folder + "/" + program;
  }
  return "";
}

// A port that is free now.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool is_bound = bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(fd);
  return is_bound ? ntohs(address.sin_port) : 0;
}

class S3ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    S3StorageOptions options = {.endpoint = Variable("AIT_TEST_S3_SERVER")};
    if (const std::string bucket = Variable("AIT_TEST_S3_BUCKET"); !bucket.empty())
      bucket_ = bucket;
    if (options.endpoint.empty()) {
      const std::string program = OnPath("localbucket");
      if (program.empty()) {
        GTEST_SKIP() << "no server of S3: AIT_TEST_S3_SERVER is not set and localbucket is not on "
                        "PATH (pip install localbucket)";
      }
      std::filesystem::create_directories(folder_ + "/" + bucket_);
      const int port = FreePort();
      server_ = std::make_unique<Process>(
          Process::Spawn({.program = program, .args = {"--port", std::to_string(port), folder_}}));
      options.endpoint = StrCat("http://127.0.0.1:", port);
      options.credentials =
          *FixedAwsCredentials({.access_key_id = "AK", .secret_access_key = "SK"});
    }
    storage_ = *S3Storage::Create(options);
    // The server may still be starting: connecting to it is tried again.
    ASSERT_OK(storage_->Put(Url("ready"), {}));
    ASSERT_OK(storage_->Remove(Url("ready")));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Url(const std::string& key) const { return "s3://" + bucket_ + "/ait/" + key; }

  std::string bucket_ = "ait-test";
  const std::string folder_ = ::testing::TempDir() + "/ait_s3_server";
  std::unique_ptr<Process> server_;
  std::shared_ptr<S3Storage> storage_;
};

TEST_F(S3ServerTest, KeepsWhatWasWritten) {
  std::string large((std::size_t{11} << 20) + 3, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 + i / 251);
  const std::vector<std::string> keys = {"a b+c=d%41&e", "k\xc3\xa4se/\xe6\x97\xa5", "large.bin",
                                         "x"};
  for (const std::string& key : keys) {
    const std::string bytes = key == "large.bin" ? large : "bytes of " + key;
    ASSERT_OK(storage_->Put(Url(key), std::as_bytes(std::span(bytes)))) << key;
    ASSERT_OK_AND_ASSIGN(const auto object, storage_->Open(Url(key)));
    ASSERT_OK_AND_ASSIGN(const ByteView whole, ReadWhole(*object));
    EXPECT_TRUE(whole.text() == bytes) << key;
    std::string part(5, '?');
    ASSERT_OK(object->ReadAt(3, std::as_writable_bytes(std::span(part)))) << key;
    EXPECT_EQ(part, bytes.substr(3, 5)) << key;
  }
  std::vector<std::string> listed;
  ASSERT_OK(storage_->List(Url(""), [&](const ObjectInfo& info) {
    listed.push_back(info.url);
    return OkStatus();
  }));
  std::vector<std::string> expected;
  for (const std::string& key : keys) expected.push_back(Url(key));
  EXPECT_EQ(listed, expected);
  for (const std::string& key : keys) ASSERT_OK(storage_->Remove(Url(key)));
  EXPECT_THAT(storage_->Open(Url("x")), StatusIs(StatusCode::kNotFound));
}

TEST_F(S3ServerTest, AnObjectThatIsReplacedIsAnError) {
  const std::string first = "0123456789", second = "abcdefghij";
  ASSERT_OK(storage_->Put(Url("a"), std::as_bytes(std::span(first))));
  ASSERT_OK_AND_ASSIGN(const auto object, storage_->Open(Url("a")));
  ASSERT_OK(storage_->Put(Url("a"), std::as_bytes(std::span(second))));
  EXPECT_THAT(ReadWhole(*object), StatusIs(StatusCode::kAborted));
  ASSERT_OK(storage_->Remove(Url("a")));
}

}  // namespace
}  // namespace ait
