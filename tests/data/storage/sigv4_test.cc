// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/sigv4.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace ait {
namespace {

std::string HashOf(const std::string& body) { return Sha256Hex(std::as_bytes(std::span(body))); }

SigV4Request::Pairs PairsOf(const nlohmann::json& list) {
  SigV4Request::Pairs pairs;
  for (const auto& pair : list) pairs.emplace_back(pair[0], pair[1]);
  return pairs;
}

class SigV4Test : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(AIT_STORAGE_TESTDATA "/signatures.json");
    ASSERT_TRUE(file);
    vectors_ = nlohmann::json::parse(file);
    credentials_ = {.access_key_id = vectors_["access_key_id"],
                    .secret_access_key = vectors_["secret_access_key"]};
  }
  static SigV4Request RequestOf(const nlohmann::json& vector) {
    return {.method = vector["method"],
            .path = vector["path"],
            .query = PairsOf(vector["query"]),
            .headers = PairsOf(vector["headers"]),
            .payload_sha256 = HashOf(vector["body"])};
  }
  nlohmann::json vectors_;
  AwsCredentials credentials_;
};

TEST_F(SigV4Test, SignsThePublishedSuite) {
  ASSERT_GE(vectors_["suite"].size(), 23U);
  for (const auto& vector : vectors_["suite"]) {
    SCOPED_TRACE(vector["name"].get<std::string>());
    const SigV4Request request = RequestOf(vector);
    EXPECT_EQ(SigV4CanonicalRequest(request), vector["canonical"].get<std::string>());
    EXPECT_EQ(SigV4StringToSign(request, "us-east-1", "service", "20150830T123600Z"),
              vector["to_sign"].get<std::string>());
    EXPECT_EQ(SigV4Authorization(request, credentials_, "us-east-1", "service", "20150830T123600Z"),
              vector["authorization"].get<std::string>());
  }
}

TEST_F(SigV4Test, SignsRequestsOfS3AsBotocoreDoes) {
  ASSERT_GE(vectors_["s3"].size(), 17U);
  for (const auto& vector : vectors_["s3"]) {
    SCOPED_TRACE(vector["name"].get<std::string>());
    EXPECT_EQ(
        SigV4Authorization(RequestOf(vector), credentials_, "eu-west-1", "s3", "20260228T235958Z"),
        vector["authorization"].get<std::string>());
  }
}

// "Examples: Signature Calculations" of the Amazon S3 API Reference.
TEST(SigV4S3ExamplesTest, SignsTheExamplesOfTheReference) {
  const AwsCredentials credentials = {
      .access_key_id = "AKIAIOSFODNN7EXAMPLE",
      .secret_access_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
  const std::string date = "20130524T000000Z";
  const auto signature = [&](SigV4Request request, const std::string& body) {
    request.payload_sha256 = HashOf(body);
    request.headers.emplace_back("Host", "examplebucket.s3.amazonaws.com");
    request.headers.emplace_back("x-amz-date", date);
    request.headers.emplace_back("x-amz-content-sha256", request.payload_sha256);
    const std::string text = SigV4Authorization(request, credentials, "us-east-1", "s3", date);
    return text.substr(text.find("Signature=") + 10);
  };
  EXPECT_EQ(signature({.path = "/test.txt", .headers = {{"Range", "bytes=0-9"}}}, ""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(signature({.method = "PUT",
                       .path = "/test%24file.text",
                       .headers = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                   {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}},
                      "Welcome to Amazon S3."),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(signature({.query = {{"lifecycle", ""}}}, ""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(signature({.query = {{"max-keys", "2"}, {"prefix", "J"}}}, ""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SigV4PartsTest, WritesDatesQueriesAndHashes) {
  EXPECT_EQ(AmzDate(std::chrono::system_clock::time_point(std::chrono::seconds(1369353600))),
            "20130524T000000Z");
  EXPECT_EQ(SigV4Query({{"b", "2"}, {"a", "/ +"}, {"uploads", ""}}), "a=%2F%20%2B&b=2&uploads=");
  EXPECT_EQ(HashOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace ait
