// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_SIGV4_H_
#define AIT_DATA_STORAGE_SIGV4_H_

// AWS Signature Version 4, in the header of a request.
//
// The signer of S3Storage, for programs that talk to a service of their own. Everything given is
// signed: put in what is sent, `host` and `x-amz-date` included.
//
//   SigV4Request request = {.method = "GET", .path = "/bucket/a%20b", .headers = {{"host", "…"},
//                           {"x-amz-date", now}, {"x-amz-content-sha256", kUnsignedPayload}},
//                           .payload_sha256 = std::string(kUnsignedPayload)};
//   request.headers.emplace_back("authorization",
//                                SigV4Authorization(request, credentials, "eu-west-1", "s3", now));
//
// As S3 demands, the path is signed as it is sent: it is neither normalised nor encoded again.
// Specification: "Signature Version 4 signing process", AWS General Reference.

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/data/storage/aws_credentials.h"

namespace ait::inline v0 {

inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

struct SigV4Request {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  std::string method = "GET";
  std::string path = "/";           // percent-encoded, as it is sent
  Pairs query = {};                 // not encoded; in any order
  Pairs headers = {};               // in any order and case
  std::string payload_sha256 = {};  // hexadecimal, or kUnsignedPayload
};

/// "20130524T000000Z", for x-amz-date.
std::string AmzDate(std::chrono::system_clock::time_point time);
/// SHA-256 in hexadecimal.
std::string Sha256Hex(std::span<const std::byte> bytes);
/// A query as it must be sent: sorted, all encoded, "=" after each name.
std::string SigV4Query(const SigV4Request::Pairs& query);

/// The steps of the specification; `amz_date` is that of x-amz-date.
std::string SigV4CanonicalRequest(const SigV4Request& request);
std::string SigV4StringToSign(const SigV4Request& request, std::string_view region,
                              std::string_view service, std::string_view amz_date);
/// The value of the header "authorization".
std::string SigV4Authorization(const SigV4Request& request, const AwsCredentials& credentials,
                               std::string_view region, std::string_view service,
                               std::string_view amz_date);

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_SIGV4_H_
