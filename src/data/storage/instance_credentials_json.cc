// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

#include "data/storage/instance_credentials_internal.h"

namespace ait::inline v0::internal {

std::optional<std::chrono::system_clock::time_point> ParseUtcTime(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  if (text.size() < kForm.size() + 1 || text.back() != 'Z') return std::nullopt;
  std::array<int, 6> numbers{};
  std::size_t at = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t length = i == 0 ? 4 : 2;
    const char* const begin = text.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + length, numbers[i]);
    if (error != std::errc() || end != begin + length) return std::nullopt;
    at += length;
    if (i + 1 == numbers.size()) break;
    if (text[at] != kForm[at]) return std::nullopt;
    ++at;
  }
  // The clock counts nanoseconds, and so ends in 2262.
  if (numbers[0] < 1970) return std::nullopt;
  std::tm parts = {};
  parts.tm_year = std::min(numbers[0], 2200) - 1900;
  parts.tm_mon = numbers[1] - 1;
  parts.tm_mday = numbers[2];
  parts.tm_hour = numbers[3];
  parts.tm_min = numbers[4];
  parts.tm_sec = numbers[5];
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

StatusOr<AwsCredentials> ParseInstanceCredentials(std::string_view json) {
  const auto document = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return InvalidArgumentError("the credentials are not a JSON object");
  const auto text = [&](const char* name) {
    const auto found = document.find(name);
    return found != document.end() && found->is_string() ? found->get<std::string>()
                                                         : std::string();
  };
  if (const std::string code = text("Code"); !code.empty() && code != "Success") {
    return FailedPreconditionError("the service has no credentials: ", code.substr(0, 100));
  }
  AwsCredentials credentials = {.access_key_id = text("AccessKeyId"),
                                .secret_access_key = text("SecretAccessKey"),
                                .session_token = text("Token"),
                                .expires = ParseUtcTime(text("Expiration"))};
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    return InvalidArgumentError("the credentials lack AccessKeyId or SecretAccessKey");
  }
  for (const std::string* key :
       {&credentials.access_key_id, &credentials.secret_access_key, &credentials.session_token}) {
    for (const char c : *key) {
      if (c <= ' ' || c > '~') {
        return InvalidArgumentError("the credentials have a key with a control character in it");
      }
    }
  }
  return credentials;
}

}  // namespace ait::inline v0::internal
