// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/format/format_util_internal.h"
#include "data/format/lines_internal.h"
#include "data/json_internal.h"
#include "nlohmann/json.hpp"

namespace ait::inline v0 {
namespace internal {
namespace {

using nlohmann::json;

// The shape of nested lists of numbers of one kind; false if they are none.
struct ArrayShape {
  std::vector<std::int64_t> sizes;
  bool has_boolean = false;
  bool has_integer = false;
  bool has_float = false;

  bool Measure(const json& value, std::size_t depth = 0) {
    if (!value.is_array()) {
      if (depth != sizes.size()) return false;
      has_boolean |= value.is_boolean();
      has_integer |= value.is_number_integer();
      has_float |= value.is_number_float();
      return value.is_boolean() || value.is_number();
    }
    const auto size = static_cast<std::int64_t>(value.size());
    if (depth == sizes.size()) {
      // A list where a number was before: ragged.
      if (has_boolean || has_integer || has_float || is_closed) return false;
      sizes.push_back(size);
    } else if (sizes[depth] != size) {
      return false;
    }
    for (const json& item : value) {
      if (!Measure(item, depth + 1)) return false;
    }
    if (size == 0) is_closed = true;
    return true;
  }

  bool is_closed = false;
};

template <typename T>
void Collect(const json& value, std::vector<T>& numbers) {
  if (!value.is_array()) {
    numbers.push_back(value.get<T>());
    return;
  }
  for (const json& item : value) Collect(item, numbers);
}

bool FitsInt64(const json& value) {
  if (value.is_array()) {
    for (const json& item : value) {
      if (!FitsInt64(item)) return false;
    }
    return true;
  }
  return !value.is_number_unsigned() ||
         value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
}

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kBetween = " \t\r\n,:";  // names and values of an object

// Where the value that begins at `at` ends, in a text that is JSON.
std::size_t ValueEnd(std::string_view text, std::size_t at) {
  int depth = 0;
  bool is_string = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (is_string) {
      if (c == '\\') ++at;
      if (c != '"') continue;
      is_string = false;
      if (depth == 0) return at + 1;
    } else if (c == '"') {
      is_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == '}' || kBetween.find(c) != std::string_view::npos)) {
      return at;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return at + 1;
    }
  }
  return text.size();
}

template <typename T>
Status AddNumbers(const std::string& name, const json& value, const ArrayShape& shape, DType dtype,
                  SampleBuilder& builder) {
  std::vector<T> numbers;
  Collect(value, numbers);
  return builder.AddArray(name, {.dtype = dtype}, shape.sizes,
                          ByteView::Copy(std::as_bytes(std::span(numbers))));
}

Status AddMember(const std::string& name, std::string_view text, SampleBuilder& builder) {
  // Objects as they stand: parsed, they would lose the order of their names, and repeated ones.
  if (text.front() == '{') {
    builder.AddBytes(name, ByteView::Copy(text), FieldKind::kText);
    return OkStatus();
  }
  const json value = json::parse(text, nullptr, false);
  if (value.is_null()) return OkStatus();
  if (value.is_string()) {
    builder.AddBytes(name, ByteView::Copy(value.get_ref<const std::string&>()), FieldKind::kText);
    return OkStatus();
  }
  ArrayShape shape;
  if (shape.Measure(value) && !(shape.has_boolean && (shape.has_integer || shape.has_float))) {
    if (shape.has_boolean) {
      return AddNumbers<std::uint8_t>(name, value, shape, DType::kBool, builder);
    }
    // The parser makes a float of an integer that no 64 bits hold.
    const bool has_fraction = text.find_first_of(".eE") != std::string_view::npos;
    if (shape.has_float && has_fraction) {
      return AddNumbers<double>(name, value, shape, DType::kFloat64, builder);
    }
    if (shape.has_float || !FitsInt64(value)) {
      return InvalidArgumentError("\"", name, "\" has a number that int64 cannot hold");
    }
    return AddNumbers<std::int64_t>(name, value, shape, DType::kInt64, builder);
  }
  builder.AddBytes(name, ByteView::Copy(text), FieldKind::kText);
  return OkStatus();
}

// The next member of an object from `at` on, in a text that is one; false at its end.
bool NextMember(std::string_view text, std::size_t& at, std::string_view& name,
                std::string_view& value) {
  at = text.find_first_not_of(kBetween, at);
  if (text[at] == '}') return false;
  const std::size_t name_end = ValueEnd(text, at);
  name = text.substr(at, name_end - at);
  at = text.find_first_not_of(kBetween, name_end);
  const std::size_t value_end = ValueEnd(text, at);
  value = text.substr(at, value_end - at);
  at = value_end;
  return true;
}

}  // namespace

Status DecodeJsonLine(const ByteView& record, Sample& sample) {
  const std::string_view text = record.text();
  if (const Status shallow = CheckJsonDepth(text); !shallow.ok()) {
    return InvalidArgumentError(Message(shallow));
  }
  // The parser takes a zero byte for the end, and reads over a byte-order mark.
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos || text[begin] != '{' ||
      text.find('\0') != std::string_view::npos || !json::accept(text)) {
    return InvalidArgumentError("it is no JSON object");
  }
  std::map<std::string, std::string_view> members;
  std::string_view name;
  std::string_view value;
  for (std::size_t at = begin + 1; NextMember(text, at, name, value);) {
    const json parsed = json::parse(name, nullptr, false);
    if (!members.emplace(parsed.get_ref<const std::string&>(), value).second) {
      return InvalidArgumentError("a name is there twice");
    }
  }
  SampleBuilder builder(sample);
  for (const auto& [key, member] : members) {
    AIT_RETURN_IF_ERROR(AddMember(key, member, builder));
  }
  builder.Finish();
  return OkStatus();
}

}  // namespace internal
}  // namespace ait::inline v0
