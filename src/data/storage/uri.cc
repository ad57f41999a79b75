// SPDX-License-Identifier: Apache-2.0
#include "data/storage/uri_internal.h"

#include <cstddef>

namespace ait::inline v0::internal {
namespace {

constexpr char kHexDigits[] = "0123456789ABCDEF";

bool IsAlphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

void AppendEncoded(std::string& out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  out += '%';
  out += kHexDigits[byte >> 4];
  out += kHexDigits[byte & 15];
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string SchemeOf(std::string_view url) {
  const std::size_t end = url.find("://");
  if (end == std::string_view::npos || end == 0) return {};
  std::string scheme;
  for (const char c : url.substr(0, end)) {
    if (!IsAlphanumeric(c) && c != '+' && c != '-' && c != '.') return {};
    scheme += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return scheme;
}

std::string PercentEncode(std::string_view text, std::string_view keep) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (IsAlphanumeric(c) || std::string_view("-._~").find(c) != std::string_view::npos ||
        keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      AppendEncoded(out, c);
    }
  }
  return out;
}

StatusOr<std::string> PercentDecode(std::string_view text, Plus plus) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus == Plus::kIsSpace) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 1 < text.size() ? HexValue(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexValue(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return InvalidArgumentError("'%' without two hexadecimal digits at byte ", i);
      }
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

std::string WithoutSecrets(std::string_view url) {
  const std::size_t query = url.find_first_of("?#");
  std::string shown(url.substr(0, query));
  if (query != std::string_view::npos) shown += "?...";
  const std::size_t host = shown.find("://");
  if (host == std::string::npos) return shown;
  const std::size_t path = shown.find('/', host + 3);
  const std::size_t user = shown.substr(0, path).rfind('@');
  if (user != std::string::npos && user > host) shown.erase(host + 3, user - host - 2);
  return shown;
}

StatusOr<std::string> CheckedHttpUrl(std::string_view url) {
  const std::string scheme = SchemeOf(url);
  if (scheme != "http" && scheme != "https") {
    return InvalidArgumentError(WithoutSecrets(url), " is no URL of http or https");
  }
  url = url.substr(0, url.find('#'));
  const std::size_t host = scheme.size() + 3;
  const std::string_view authority = url.substr(host, url.find_first_of("/?", host) - host);
  if (authority.empty()) return InvalidArgumentError(WithoutSecrets(url), " names no host");
  if (authority.find('@') != std::string_view::npos) {
    return InvalidArgumentError(WithoutSecrets(url),
                                " holds the name of a user: URLs end up in messages, so give it as "
                                "a header (HttpStorageOptions::headers)");
  }
  std::string out;
  for (const char c : url) {
    if (c <= ' ' || c >= '\x7f') {  // char may be signed: bytes above 0x7f are below ' '
      AppendEncoded(out, c);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace ait::inline v0::internal
