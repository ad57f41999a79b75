// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <deque>

#include "data/storage/s3_service_internal.h"
#include "data/storage/s3_xml_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kMinPartBytes = std::int64_t{5} << 20;  // of S3, but for the last
constexpr std::int64_t kMaxParts = 10'000;

S3Request Upload(std::string method, const S3Location& location, SigV4Request::Pairs query,
                 std::span<const std::byte> body) {
  const int patience = method == "POST" ? 15 : 1;
  return {.method = std::move(method),
          .location = location,
          .query = std::move(query),
          .headers = {{"content-type", "application/octet-stream"}},
          .body = body,
          .body_sha256 = Sha256Hex(body),
          .patience = patience};
}

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Status HasEtag(const HttpAnswer& answer) {
  if (answer.Find("etag")) return OkStatus();
  return DataLossError("the answer to a part names no ETag");
}

// S3 may say 200 first and find an error while it joins the parts.
Status IsNoError(const HttpAnswer& answer) {
  const StatusOr<S3Error> error = ParseS3Error(answer.body);
  if (!error.ok()) return OkStatus();
  return UnavailableError("the parts were not joined: ", error->code.substr(0, 60));
}

Status PutParts(const S3Service& service, const S3Location& location, const std::string& id,
                std::span<const std::byte> bytes, std::int64_t part_bytes) {
  std::deque<S3Call> parts;
  std::vector<HttpCall*> calls;
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(part_bytes)) {
    const std::size_t length = std::min(bytes.size() - at, static_cast<std::size_t>(part_bytes));
    parts.emplace_back(
        service,
        Upload("PUT", location, {{"partNumber", StrCat(parts.size() + 1)}, {"uploadId", id}},
               bytes.subspan(at, length)),
        HasEtag);
    calls.push_back(&parts.back());
  }
  AIT_RETURN_IF_ERROR(service.client()->Run(calls, HttpClient::AfterError::kStop));
  std::string list = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    list += StrCat("<Part><PartNumber>", i + 1, "</PartNumber><ETag>",
                   EscapeXml(parts[i].answer().Find("etag").value_or("")), "</ETag></Part>");
  }
  list += "</CompleteMultipartUpload>";
  S3Call complete(service,
                  Upload("POST", location, {{"uploadId", id}}, std::as_bytes(std::span(list))),
                  IsNoError);
  Status status = complete.Run();
  if (status.code() != StatusCode::kNotFound || complete.tries() < 2) return status;
  // An earlier try may have joined them, its answer lost.
  S3Call head(service, {.method = "HEAD", .location = location});
  AIT_RETURN_IF_ERROR(head.Run());
  const bool is_there =
      head.answer().Find("content-length") == std::string_view(StrCat(bytes.size()));
  return is_there ? OkStatus() : status;
}

}  // namespace

Status PutObject(const S3Service& service, const S3Location& location,
                 std::span<const std::byte> bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::int64_t part_bytes = std::max(
      {service.client()->options().part_bytes, kMinPartBytes, (size + kMaxParts - 1) / kMaxParts});
  if (size <= part_bytes) return S3Call(service, Upload("PUT", location, {}, bytes)).Run();
  S3Call create(service, Upload("POST", location, {{"uploads", ""}}, {}),
                [](const HttpAnswer& answer) { return ParseS3UploadId(answer.body).status(); });
  AIT_RETURN_IF_ERROR(create.Run());
  AIT_ASSIGN_OR_RETURN(const std::string id, ParseS3UploadId(create.answer().body));
  Status status = PutParts(service, location, id, bytes, part_bytes);
  if (!status.ok()) {
    // What was sent would be kept, and paid for.
    (void)S3Call(service, {.method = "DELETE", .location = location, .query = {{"uploadId", id}}})
        .Run();
  }
  return status;
}

}  // namespace ait::inline v0::internal
