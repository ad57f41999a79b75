// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

#include "data/format/mds_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

using Kind = MdsEncoding::Kind;

constexpr std::array<std::string_view, 11> kNumbers = {"uint8",   "uint16",  "uint32", "uint64",
                                                       "int8",    "int16",   "int32",  "int64",
                                                       "float16", "float32", "float64"};

std::optional<NumberType> NumberOf(std::string_view name) {
  if (std::find(kNumbers.begin(), kNumbers.end(), name) == kNumbers.end()) return std::nullopt;
  return NumberTypeFromName(name);
}

/// The number that stands for a dtype in front of an array.
std::optional<NumberType> TypeOfCode(std::uint8_t code) {
  constexpr std::array<std::pair<std::uint8_t, std::string_view>, 11> kCodes = {{{8, "uint8"},
                                                                                 {9, "int8"},
                                                                                 {16, "uint16"},
                                                                                 {17, "int16"},
                                                                                 {18, "float16"},
                                                                                 {32, "uint32"},
                                                                                 {33, "int32"},
                                                                                 {34, "float32"},
                                                                                 {64, "uint64"},
                                                                                 {65, "int64"},
                                                                                 {66, "float64"}}};
  for (const auto& [number, name] : kCodes) {
    if (number == code) return NumberTypeFromName(name);
  }
  return std::nullopt;
}

StatusOr<MdsEncoding> ParseArrayEncoding(std::string_view rest) {
  MdsEncoding encoding = {.kind = Kind::kArray};
  if (rest.empty()) return encoding;
  const std::size_t colon = rest.find(':');
  const std::string_view dtype = rest.substr(0, colon);
  encoding.type = NumberOf(dtype);
  if (!encoding.type) return InvalidArgumentError("\"", dtype, "\" is no dtype of an ndarray");
  if (colon == std::string_view::npos) return encoding;
  encoding.shape.emplace();
  for (std::string_view sizes = rest.substr(colon + 1);;) {
    const std::size_t comma = sizes.find(',');
    const std::string_view text = sizes.substr(0, comma);
    std::int64_t size = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), size);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size() || size < 1 ||
        encoding.shape->size() == 63) {
      return InvalidArgumentError("\"", rest, "\" is no dtype and shape of an ndarray");
    }
    encoding.shape->push_back(size);
    if (comma == std::string_view::npos) break;
    sizes.remove_prefix(comma + 1);
  }
  if (ArrayBytes(encoding.type->dtype, *encoding.shape) < 0) {
    return InvalidArgumentError("the shape of \"", rest, "\" is too large");
  }
  return encoding;
}

Status AddArrayValue(const MdsColumn& column, ByteView value, SampleBuilder& builder) {
  const auto cut_short = [&] {
    return DataLossError("column \"", column.name, "\": its ndarray is cut short");
  };
  std::optional<NumberType> type = column.encoding.type;
  std::size_t at = 0;
  if (!type) {
    if (value.is_empty()) return cut_short();
    const auto code = LoadLittleEndian<std::uint8_t>(value.bytes(), at++);
    type = TypeOfCode(code);
    if (!type) return DataLossError("column \"", column.name, "\": ", code, " is no dtype");
  }
  std::vector<std::int64_t> own_shape;
  if (!column.encoding.shape) {
    if (value.size_bytes() <= at) return cut_short();
    const auto byte = LoadLittleEndian<std::uint8_t>(value.bytes(), at++);
    const std::size_t size_bytes = std::size_t{1} << (byte & 3);
    const std::size_t dimensions = byte >> 2;
    if (value.size_bytes() - at < dimensions * size_bytes) return cut_short();
    for (std::size_t i = 0; i < dimensions; ++i, at += size_bytes) {
      std::uint64_t size = 0;
      std::memcpy(&size, value.data() + at, size_bytes);
      if (size > static_cast<std::uint64_t>(INT64_MAX)) return cut_short();
      own_shape.push_back(static_cast<std::int64_t>(size));
    }
  }
  const std::vector<std::int64_t>& shape =
      column.encoding.shape ? *column.encoding.shape : own_shape;
  const std::int64_t stated = ArrayBytes(type->dtype, shape);
  if (stated < 0 || value.size_bytes() - at != static_cast<std::size_t>(stated)) {
    return DataLossError("column \"", column.name, "\": its ndarray has ", value.size_bytes() - at,
                         " bytes, which its shape does not");
  }
  return builder.AddArray(column.name, *type, shape,
                          value.Slice(at, static_cast<std::size_t>(stated)));
}

}  // namespace

std::optional<std::int64_t> MdsEncoding::fixed_bytes() const {
  if (kind == Kind::kNumber) return SizeOf(type->dtype);
  if (kind == Kind::kArray && type && shape) return ArrayBytes(type->dtype, *shape);
  return std::nullopt;
}

StatusOr<MdsEncoding> ParseMdsEncoding(std::string_view name) {
  if (name == "int") return MdsEncoding{.kind = Kind::kNumber, .type = NumberOf("int64")};
  if (const std::optional<NumberType> type = NumberOf(name)) {
    return MdsEncoding{.kind = Kind::kNumber, .type = type};
  }
  if (name == "ndarray") return ParseArrayEncoding("");
  if (name.starts_with("ndarray:")) return ParseArrayEncoding(name.substr(8));
  if (name == "bytes" || name == "jpeg" || name == "png") return MdsEncoding{.kind = Kind::kBytes};
  for (const std::string_view text : {"str", "json", "str_int", "str_float", "str_decimal"}) {
    if (name == text) return MdsEncoding{.kind = Kind::kText};
  }
  if (name == "pkl") {
    return UnimplementedError(
        "the encoding pkl (pickle) runs code of the file when it is read, and is refused: write "
        "the data set again with json, ndarray or bytes");
  }
  for (const std::string_view known :
       {"pil", "jpeg_array", "jpegarray", "list[pil]", "list[jpeg]", "list[png]"}) {
    if (name == known) return UnimplementedError("the encoding ", name, " is not read");
  }
  return InvalidArgumentError("\"", name, "\" is no encoding of MDS");
}

StatusOr<std::vector<MdsColumn>> ParseMdsColumns(const nlohmann::json& config) {
  const auto list = [&](const char* key) -> const nlohmann::json* {
    const auto found = config.find(key);
    return found != config.end() && found->is_array() ? &*found : nullptr;
  };
  if (!config.is_object()) return DataLossError("the configuration is no JSON object");
  const auto version = config.find("version");
  const auto format = config.find("format");
  if (version == config.end() || *version != 2) {
    return UnimplementedError("the configuration is not of version 2, the only one that is known");
  }
  if (format == config.end() || *format != "mds") {
    return UnimplementedError("the shard is not of the format \"mds\"");
  }
  const nlohmann::json* names = list("column_names");
  const nlohmann::json* encodings = list("column_encodings");
  const nlohmann::json* sizes = list("column_sizes");
  if (names == nullptr || encodings == nullptr || sizes == nullptr ||
      names->size() != encodings->size() || names->size() != sizes->size()) {
    return DataLossError("column_names, column_encodings and column_sizes are not of one length");
  }
  std::vector<MdsColumn> columns;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < names->size(); ++i) {
    if (!(*names)[i].is_string() || !(*encodings)[i].is_string()) {
      return DataLossError("a column's name or encoding is no text");
    }
    MdsColumn column = {.name = (*names)[i].get<std::string>(),
                        .encoding_name = (*encodings)[i].get<std::string>()};
    if (!seen.insert(column.name).second) {
      return DataLossError("column \"", column.name, "\" is there twice");
    }
    StatusOr<MdsEncoding> encoding = ParseMdsEncoding(column.encoding_name);
    if (!encoding.ok()) {
      return Annotate(encoding.status(), StrCat("column \"", column.name, "\""));
    }
    column.encoding = *std::move(encoding);
    column.fixed_bytes = column.encoding.fixed_bytes();
    const nlohmann::json& size = (*sizes)[i];
    const bool fits = column.fixed_bytes ? size.is_number_unsigned() && size == *column.fixed_bytes
                                         : size.is_null();
    if (!fits) {
      return DataLossError("column \"", column.name, "\" has the size ", size.dump(),
                           ", which is not that of ", column.encoding_name);
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

Status AddMdsValue(const MdsColumn& column, const ByteView& value, SampleBuilder& builder) {
  switch (column.encoding.kind) {
    case Kind::kBytes:
      builder.AddBytes(column.name, value);
      return OkStatus();
    case Kind::kText:
      if (!IsUtf8(value.text())) {
        return InvalidArgumentError("column \"", column.name, "\" is not UTF-8");
      }
      builder.AddBytes(column.name, value, FieldKind::kText);
      return OkStatus();
    case Kind::kNumber:
      return builder.AddArray(column.name, *column.encoding.type, {}, value);
    case Kind::kArray:
      return AddArrayValue(column, value, builder);
  }
  return OkStatus();
}

}  // namespace internal
}  // namespace ait::inline v0
