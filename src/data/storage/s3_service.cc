// SPDX-License-Identifier: Apache-2.0
#include "data/storage/s3_service_internal.h"

#include <algorithm>
#include <chrono>

#include "data/storage/s3_xml_internal.h"
#include "data/storage/uri_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::string_view kEmptySha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// A name that may be a label of a host: virtual addressing with it works under a certificate for
// "*.s3.REGION.amazonaws.com".
bool IsHostLabel(std::string_view bucket) {
  if (bucket.size() < 3 || bucket.size() > 63 || bucket.front() == '-' || bucket.back() == '-') {
    return false;
  }
  return std::all_of(bucket.begin(), bucket.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// Text of a server for a message: printable, short, and without keys.
std::string Harmless(std::string_view text, const AwsCredentials& credentials) {
  std::string out;
  for (const char c : text.substr(0, 300)) out += c >= ' ' && c <= '~' ? c : ' ';
  for (const std::string* secret :
       {&credentials.access_key_id, &credentials.secret_access_key, &credentials.session_token}) {
    if (secret->empty()) continue;
    for (std::size_t at; (at = out.find(*secret)) != std::string::npos;) {
      out.replace(at, secret->size(), "(a key)");
    }
  }
  return out;
}

bool IsOneOf(std::string_view code, std::initializer_list<std::string_view> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

}  // namespace

StatusOr<S3Location> ParseS3Url(std::string_view url) {
  if (SchemeOf(url) != "s3") {
    return InvalidArgumentError("'", WithoutSecrets(url),
                                "' is no URL of the form s3://bucket/key");
  }
  url.remove_prefix(5);
  const std::size_t slash = std::min(url.find('/'), url.size());
  S3Location location = {std::string(url.substr(0, slash)),
                         std::string(url.substr(std::min(slash + 1, url.size())))};
  const bool is_name = std::all_of(location.bucket.begin(), location.bucket.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
  });
  if (location.bucket.empty() || location.bucket.size() > 255 || !is_name ||
      location.bucket.find_first_not_of('.') == std::string::npos) {
    return InvalidArgumentError("'", location.bucket.substr(0, 60),
                                "' is no name of a bucket: letters, digits, '-', '.' and '_'");
  }
  if (location.key.size() > 1024) {
    return InvalidArgumentError(location.url().substr(0, 100), "...: a key of ",
                                location.key.size(), " bytes; S3 has at most 1024");
  }
  return location;
}

std::string S3Service::RegionOf(const std::string& bucket) const {
  const std::scoped_lock lock(mutex_);
  const auto found = regions_.find(bucket);
  return found == regions_.end() ? options_.region : found->second;
}

std::pair<std::string, std::string> S3Service::EndpointOf(const std::string& bucket,
                                                          const std::string& region) const {
  const bool is_aws = options_.endpoint.empty();
  std::string endpoint = is_aws ? StrCat("https://s3.", region, ".amazonaws.com",
                                         region.starts_with("cn-") ? ".cn" : "")
                                : options_.endpoint;
  const std::size_t host = endpoint.find("://") + 3;
  const std::size_t path = std::min(endpoint.find('/', host), endpoint.size());
  std::string prefix = endpoint.substr(path);
  endpoint.resize(path);
  const bool is_virtual =
      options_.addressing == S3Addressing::kVirtual ||
      (options_.addressing == S3Addressing::kAutomatic && is_aws && IsHostLabel(bucket));
  if (is_virtual) {
    endpoint.insert(host, bucket + ".");
  } else {
    prefix.append("/").append(bucket);
  }
  return {std::move(endpoint), std::move(prefix)};
}

StatusOr<HttpRequest> S3Service::Sign(const S3Request& request) const {
  AIT_ASSIGN_OR_RETURN(const AwsCredentials credentials, options_.credentials->Get());
  const S3Location& location = request.location;
  const std::string region = RegionOf(location.bucket);
  const auto [endpoint, prefix] = EndpointOf(location.bucket, region);
  SigV4Request to_sign = {.method = request.method,
                          .path = prefix + "/" + PercentEncode(location.key, "/"),
                          .query = request.query,
                          .headers = request.headers};
  HttpRequest out = {.method = request.method,
                     .url = endpoint + to_sign.path,
                     .body = request.body,
                     .patience = request.patience};
  if (!request.query.empty()) out.url.append("?").append(SigV4Query(request.query));
  if (!credentials.is_anonymous()) {
    const std::string date = AmzDate(std::chrono::system_clock::now());
    to_sign.payload_sha256 =
        request.body_sha256.empty() ? std::string(kEmptySha256) : request.body_sha256;
    to_sign.headers.emplace_back("x-amz-date", date);
    to_sign.headers.emplace_back("x-amz-content-sha256", to_sign.payload_sha256);
    if (!credentials.session_token.empty()) {
      to_sign.headers.emplace_back("x-amz-security-token", credentials.session_token);
    }
    for (const auto& [name, value] : to_sign.headers) out.headers.push_back(name + ": " + value);
    to_sign.headers.emplace_back("host", endpoint.substr(endpoint.find("://") + 3));
    out.headers.push_back("authorization: " +
                          SigV4Authorization(to_sign, credentials, region, "s3", date));
  } else {
    for (const auto& [name, value] : to_sign.headers) out.headers.push_back(name + ": " + value);
  }
  return out;
}

HttpVerdict S3Service::Judge(std::string_view what, const std::string& bucket,
                             const HttpAnswer& answer) const {
  const S3Error error = ParseS3Error(answer.body).value_or(S3Error{});
  std::string region(answer.Find("x-amz-bucket-region").value_or(error.region));
  if (IsOneOf(StrCat(answer.status), {"301", "307", "400", "403"}) && !region.empty() &&
      region.size() < 64 && region != RegionOf(bucket)) {
    {
      const std::scoped_lock lock(mutex_);
      regions_[bucket] = region;
    }
    return HttpVerdict::Retry(FailedPreconditionError(what, ": HTTP ", answer.status,
                                                      ", the bucket lies in region '",
                                                      Harmless(region, {}), "'; name that region"));
  }
  std::string detail;
  if (!error.code.empty()) {
    const AwsCredentials credentials = options_.credentials->Get().value_or(AwsCredentials{});
    detail =
        StrCat(Harmless(error.code, credentials), " (", Harmless(error.message, credentials), ")");
  }
  if (error.code == "RequestTimeTooSkewed") {
    detail += StrCat("; the clock of this host says ", AmzDate(std::chrono::system_clock::now()),
                     " and that of the server ", answer.Find("date").value_or("nothing"));
  }
  if (IsOneOf(error.code,
              {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"})) {
    Status status = PermissionDeniedError(what, ": HTTP ", answer.status, ", ", detail,
                                          "; the keys are those of ", options_.credentials->name());
    return options_.credentials->Forget() ? HttpVerdict::Retry(std::move(status))
                                          : HttpVerdict::Done(std::move(status));
  }
  if (IsOneOf(error.code, {"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable"})) {
    HttpVerdict verdict =
        HttpVerdict::Retry(UnavailableError(what, ": HTTP ", answer.status, ", ", detail));
    verdict.wait = RetryAfter(answer);
    return verdict;
  }
  HttpVerdict verdict = JudgeRefusal(what, answer, detail);
  if (verdict.status.code() == StatusCode::kPermissionDenied) {
    verdict.status = PermissionDeniedError(Message(verdict.status), "; the keys are those of ",
                                           options_.credentials->name());
  }
  return verdict;
}

HttpVerdict S3Call::End(const HttpAnswer& answer) {
  if (answer.status < 200 || answer.status > 299) {
    return service_.Judge(what_, request_.location.bucket, answer);
  }
  if (check_) {
    if (Status status = check_(answer); !status.ok()) {
      return HttpVerdict::Retry(Annotate(status, what_));
    }
  }
  answer_ = answer;
  return HttpVerdict::Done(OkStatus());
}

Status S3Call::Run() {
  HttpCall* pointer = this;
  return service_.client()->Run({&pointer, 1});
}

}  // namespace ait::inline v0::internal
