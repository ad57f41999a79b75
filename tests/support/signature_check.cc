// SPDX-License-Identifier: Apache-2.0
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "support/http_exchange_internal.h"

// Signature version 4, from the side of the server: all is derived from what was received.

namespace ait::testing {
namespace {

std::string Hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(c));
    out += hex;
  }
  return out;
}

std::string Sha256(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return {reinterpret_cast<const char*>(digest), sizeof(digest)};
}

std::string Hmac(std::string_view key, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
  return {reinterpret_cast<const char*>(digest), size};
}

// What follows `name=` up to a comma or the end.
std::string Field(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name + "=");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 1;
  return text.substr(begin, text.find(',', begin) - begin);
}

std::string Encode(std::string_view text, bool keep_slash) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (keep_slash && c == '/');
    char encoded[4] = {c, 0, 0, 0};
    if (!plain) {
      std::snprintf(encoded, sizeof(encoded), "%%%02X", static_cast<unsigned char>(c));
    }
    out += encoded;
  }
  return out;
}

}  // namespace

std::string RefuseSignature(const HttpFaultServerOptions& options, const HttpSeen& seen) {
  const auto header = [&](const std::string& name) {
    const auto found = seen.headers.find(name);
    return found == seen.headers.end() ? std::string() : found->second;
  };
  const std::string authorization = header("authorization");
  if (authorization.empty()) return "AccessDenied";
  if (!authorization.starts_with("AWS4-HMAC-SHA256 ")) return "InvalidArgument";
  const std::string credential = Field(authorization, "Credential");
  const std::string signed_headers = Field(authorization, "SignedHeaders");
  const std::string date = header("x-amz-date");
  if (date.size() != 16) return "AccessDenied";
  const std::string scope = date.substr(0, 8) + "/" + options.region + "/s3/aws4_request";
  if (credential.substr(0, credential.find('/')) != options.access_key_id) {
    return "InvalidAccessKeyId";
  }
  if (credential != options.access_key_id + "/" + scope) return "AuthorizationHeaderMalformed";
  if (header("x-amz-security-token") != options.session_token) return "ExpiredToken";
  const std::string payload = header("x-amz-content-sha256");
  if (payload.empty()) return "MissingSecurityHeader";
  if (payload != "UNSIGNED-PAYLOAD" && payload != Hex(Sha256(seen.body))) {
    return "XAmzContentSHA256Mismatch";
  }
  const std::set<std::string> must = {"host", "x-amz-date", "x-amz-content-sha256"};
  std::set<std::string> names;
  for (std::size_t at = 0; at < signed_headers.size();) {
    const std::string name = signed_headers.substr(at, signed_headers.find(';', at) - at);
    names.insert(name);
    at += name.size() + 1;
  }
  if (!std::includes(names.begin(), names.end(), must.begin(), must.end())) return "AccessDenied";
  for (const auto& [name, value] : seen.headers) {
    if (name.starts_with("x-amz-") && !names.contains(name)) return "AccessDenied";
  }
  std::string canonical = seen.method + "\n";
  canonical += Encode(DecodePercent(seen.target.substr(0, seen.target.find('?'))), true) + "\n";
  std::vector<std::string> pairs;
  for (const auto& [name, value] : QueryOf(seen.target)) {
    pairs.push_back(Encode(name, false) + "=" + Encode(value, false));
  }
  std::sort(pairs.begin(), pairs.end());
  for (std::size_t i = 0; i < pairs.size(); ++i) canonical += (i > 0 ? "&" : "") + pairs[i];
  canonical += "\n";
  for (const std::string& name : names) canonical += name + ":" + header(name) + "\n";
  canonical += "\n" + signed_headers + "\n" + payload;
  const std::string text =
      "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + Hex(Sha256(canonical));
  std::string key = Hmac("AWS4" + options.secret_access_key, date.substr(0, 8));
  for (const std::string& part : {options.region, std::string("s3"), std::string("aws4_request")}) {
    key = Hmac(key, part);
  }
  return Field(authorization, "Signature") == Hex(Hmac(key, text)) ? "" : "SignatureDoesNotMatch";
}

}  // namespace ait::testing
