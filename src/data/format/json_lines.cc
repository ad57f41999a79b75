// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <set>
#include <utility>

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

template <typename T>
Status AddNumbers(const std::string& name, const json& value, const ArrayShape& shape, DType dtype,
                  SampleBuilder& builder) {
  std::vector<T> numbers;
  Collect(value, numbers);
  return builder.AddArray(name, {.dtype = dtype}, shape.sizes,
                          ByteView::Copy(std::as_bytes(std::span(numbers))));
}

Status AddMember(const std::string& name, const json& value, SampleBuilder& builder) {
  if (value.is_null()) return OkStatus();
  if (value.is_string()) {
    builder.AddBytes(name, ByteView::Copy(value.get_ref<const std::string&>()), FieldKind::kText);
    return OkStatus();
  }
  ArrayShape shape;
  if (!value.is_object() && shape.Measure(value) &&
      !(shape.has_boolean && (shape.has_integer || shape.has_float))) {
    if (shape.has_boolean) {
      return AddNumbers<std::uint8_t>(name, value, shape, DType::kBool, builder);
    }
    if (shape.has_float) return AddNumbers<double>(name, value, shape, DType::kFloat64, builder);
    if (!FitsInt64(value)) {
      return InvalidArgumentError("\"", name, "\" has a number that int64 cannot hold");
    }
    return AddNumbers<std::int64_t>(name, value, shape, DType::kInt64, builder);
  }
  builder.AddBytes(name, ByteView::Copy(value.dump()), FieldKind::kText);
  return OkStatus();
}

}  // namespace

Status DecodeJsonLine(const ByteView& record, Sample& sample) {
  const std::string_view text = record.text();
  if (const Status shallow = CheckJsonDepth(text); !shallow.ok()) {
    return InvalidArgumentError(Message(shallow));
  }
  std::set<std::string> names;
  bool is_repeated = false;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) {
      is_repeated |= !names.insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  const json object = json::parse(text, watch, false);
  if (!object.is_object()) return InvalidArgumentError("it is no JSON object");
  if (is_repeated) return InvalidArgumentError("a name is there twice");
  SampleBuilder builder(sample);
  for (const auto& [name, value] : object.items()) {
    AIT_RETURN_IF_ERROR(AddMember(name, value, builder));
  }
  builder.Finish();
  return OkStatus();
}

}  // namespace internal
}  // namespace ait::inline v0
