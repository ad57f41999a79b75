// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>

#include "data/storage/uri_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::size_t kDigestBytes = 32;
using Digest = std::array<unsigned char, kDigestBytes>;

std::string Hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * digest.size());
  for (const unsigned char byte : digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

Digest Sha256(std::span<const std::byte> bytes) {
  Digest digest = {};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return digest;
}

Digest Hmac(std::string_view key, std::string_view text) {
  Digest digest = {};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size);
  return digest;
}

std::string_view View(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Without spaces at its ends, and one for each run of them within.
std::string Collapse(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!is_space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// By name; values of one name are joined in the order given.
std::map<std::string, std::string> CanonicalHeaders(const SigV4Request& request) {
  std::map<std::string, std::string> headers;
  for (const auto& [name, value] : request.headers) {
    const auto [header, is_new] = headers.try_emplace(Lower(name), Collapse(value));
    if (!is_new) header->second.append(",").append(Collapse(value));
  }
  return headers;
}

std::string SignedHeaders(const std::map<std::string, std::string>& headers) {
  std::string names;
  for (const auto& [name, value] : headers) {
    if (!names.empty()) names += ';';
    names += name;
  }
  return names;
}

std::string Scope(std::string_view region, std::string_view service, std::string_view amz_date) {
  return StrCat(amz_date.substr(0, 8), "/", region, "/", service, "/aws4_request");
}

}  // namespace

std::string AmzDate(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

std::string Sha256Hex(std::span<const std::byte> bytes) { return Hex(Sha256(bytes)); }

std::string SigV4Query(const SigV4Request::Pairs& query) {
  SigV4Request::Pairs encoded;
  for (const auto& [name, value] : query) {
    encoded.emplace_back(internal::PercentEncode(name), internal::PercentEncode(value));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string out;
  for (const auto& [name, value] : encoded) {
    if (!out.empty()) out += '&';
    out.append(name).append("=").append(value);
  }
  return out;
}

std::string SigV4CanonicalRequest(const SigV4Request& request) {
  const std::map<std::string, std::string> headers = CanonicalHeaders(request);
  std::string out = StrCat(request.method, "\n", request.path.empty() ? "/" : request.path, "\n",
                           SigV4Query(request.query), "\n");
  for (const auto& [name, value] : headers) out.append(StrCat(name, ":", value, "\n"));
  return out.append(StrCat("\n", SignedHeaders(headers), "\n", request.payload_sha256));
}

std::string SigV4StringToSign(const SigV4Request& request, std::string_view region,
                              std::string_view service, std::string_view amz_date) {
  const std::string canonical = SigV4CanonicalRequest(request);
  return StrCat(kAlgorithm, "\n", amz_date, "\n", Scope(region, service, amz_date), "\n",
                Sha256Hex(std::as_bytes(std::span(canonical))));
}

std::string SigV4Authorization(const SigV4Request& request, const AwsCredentials& credentials,
                               std::string_view region, std::string_view service,
                               std::string_view amz_date) {
  Digest key = Hmac(StrCat("AWS4", credentials.secret_access_key), amz_date.substr(0, 8));
  for (const std::string_view part : {region, service, std::string_view("aws4_request")}) {
    key = Hmac(View(key), part);
  }
  const Digest signature = Hmac(View(key), SigV4StringToSign(request, region, service, amz_date));
  return StrCat(
      kAlgorithm, " Credential=", credentials.access_key_id, "/", Scope(region, service, amz_date),
      ", SignedHeaders=", SignedHeaders(CanonicalHeaders(request)), ", Signature=", Hex(signature));
}

}  // namespace ait::inline v0
