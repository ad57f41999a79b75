// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "data/json_internal.h"

namespace ait::inline v0 {
namespace internal {

std::string HexDigits(std::uint64_t value, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit) {
    *digit = "0123456789abcdef"[value & 15];
    value >>= 4;
  }
  return text;
}

Status CheckJsonDepth(std::string_view text, int most) {
  int depth = 0;
  bool is_text = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (is_text) {
      if (c == '\\') ++at;
      if (c == '"') is_text = false;
    } else if (c == '"') {
      is_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > most) {
        return DataLossError("its JSON is more than ", most, " levels deep at byte ", at);
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return OkStatus();
}

void JsonReader::Complain(const char* key, std::string_view what) {
  if (complaint_.empty()) complaint_ = StrCat("\"", key, "\" is not ", what);
}

std::int64_t JsonReader::Integer(const nlohmann::json& object, const char* key) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  const auto field = object.find(key);
  // Text without a sign is parsed as unsigned; a negative number is another type.
  if (field == object.end() || !field->is_number_unsigned() ||
      field->get<std::uint64_t>() > kMost) {
    Complain(key, "an integer of 0 to 2^62");
    return 0;
  }
  return field->get<std::int64_t>();
}

std::string JsonReader::Text(const nlohmann::json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end() || !field->is_string()) {
    Complain(key, "a text");
    return "";
  }
  return field->get<std::string>();
}

std::uint64_t JsonReader::Hex(const nlohmann::json& object, const char* key, int digits) {
  const std::string text = Text(object, key);
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != static_cast<std::size_t>(digits) || result.ec != std::errc() ||
      result.ptr != text.data() + text.size()) {
    Complain(key, StrCat("a text of ", digits, " hexadecimal digits"));
    return 0;
  }
  return value;
}

std::vector<nlohmann::json> JsonReader::Array(const nlohmann::json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end() || !field->is_array()) {
    Complain(key, "an array");
    return {};
  }
  return {field->begin(), field->end()};
}

}  // namespace internal
}  // namespace ait::inline v0
