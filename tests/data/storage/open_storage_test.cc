// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/open_storage.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/document.h"
#include "support/http_fault_server.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::HttpFaultServer;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OpenStorageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/a") << "file";
    server_.Put("/bucket/a", "object");
    options_.s3 = {
        .endpoint = server_.url(), .credentials = AnonymousAwsCredentials(), .environment = {}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static std::string Read(const Storage& storage, const std::string& url) {
    const auto object = storage.Open(url);
    if (!object.ok()) return object.status().ToString();
    const auto whole = ReadWhole(**object);
    return whole.ok() ? std::string(whole->text()) : whole.status().ToString();
  }

  const std::string folder_ = ::testing::TempDir() + "/ait_open_storage";
  HttpFaultServer server_;
  StorageOptions options_;
};

TEST_F(OpenStorageTest, TheSchemeDecides) {
  for (const auto& [url, text] :
       {std::pair(folder_ + "/a", "file"), std::pair("file://" + folder_ + "/a", "file"),
        std::pair(server_.url() + "/bucket/a", "object"),
        std::pair(std::string("s3://bucket/a"), "object")}) {
    ASSERT_OK_AND_ASSIGN(const auto storage, OpenStorage(url, options_));
    EXPECT_EQ(Read(*storage, url), text);
  }
  EXPECT_THAT(
      OpenStorage("gs://user:pa55@bucket/a", options_),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("'gs'"), Not(HasSubstr("pa55")))));
}

TEST_F(OpenStorageTest, OneStorageForAllOfThem) {
  const auto storage = AnyStorage(options_);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Read(*storage, folder_ + "/a"), "file");
    EXPECT_EQ(Read(*storage, server_.url() + "/bucket/a"), "object");
    EXPECT_EQ(Read(*storage, "s3://bucket/a"), "object");
  }
  ASSERT_OK_AND_ASSIGN(const ObjectInfo info, storage->Stat("s3://bucket/a"));
  EXPECT_EQ(info.size_bytes, 6);
  int listed = 0;
  const auto count = [&](const ObjectInfo&) {
    ++listed;
    return OkStatus();
  };
  ASSERT_OK(storage->List(folder_, count));
  ASSERT_OK(storage->List("s3://bucket", count));
  EXPECT_EQ(listed, 2);
  EXPECT_THAT(storage->List(server_.url(), count), StatusIs(StatusCode::kUnimplemented));
  EXPECT_THAT(storage->Open("ftp://a/b"), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(OpenStorageTest, KeysAreOnlyLookedForWhereTheyAreNeeded) {
  options_.s3 = {.profile = "gone", .environment = {.home = folder_}};
  const auto storage = AnyStorage(options_);
  EXPECT_EQ(Read(*storage, folder_ + "/a"), "file");
  EXPECT_THAT(storage->Open("s3://bucket/a"), StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
}

// The code of docs/remote-data.md.
Status ReadAsDocumented() {
  ait::StorageOptions options;
  options.s3.region = "eu-west-1";
  options.s3.http.retry.deadline = std::chrono::minutes(2);
  auto storage = ait::AnyStorage(options);
  AIT_ASSIGN_OR_RETURN(auto shard, storage->Open("s3://corpus/train/shard-00000.tar"));
  AIT_ASSIGN_OR_RETURN(auto stream, shard->Stream({.block_bytes = 8 << 20, .depth = 4}));
  AIT_ASSIGN_OR_RETURN(ait::ByteView block, stream->Next());
  return block.is_empty() ? DataLossError("no data") : OkStatus();
}

Status WriteAsDocumented(std::span<const std::byte> bytes) {
  ait::S3StorageOptions minio = {.endpoint = "http://10.0.0.7:9000"};
  AIT_ASSIGN_OR_RETURN(auto s3, ait::S3Storage::Create(minio));
  return s3->Put("s3://corpus/train/shard-00000.tar", bytes);
}

TEST(RemoteDataDocumentTest, ItsCodeIsCompiled) {
  EXPECT_NE(&ReadAsDocumented, nullptr);
  EXPECT_NE(&WriteAsDocumented, nullptr);
  ::ait::testing::ExpectCodeIsCompiled(AIT_REMOTE_DATA_PAGE, AIT_REMOTE_DATA_SOURCE);
}

}  // namespace
}  // namespace ait
