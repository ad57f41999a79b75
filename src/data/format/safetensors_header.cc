// SPDX-License-Identifier: Apache-2.0
// The rules are those of the reference library, huggingface/safetensors, safetensors/src/tensor.rs
// (version 0.8), and stricter in one: a repeated key is an error, as its format description
// demands.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "data/format/safetensors_header_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kMaxDimensions = 64;

/// The name of each dtype, in the order in which the reference library lays tensors out.
constexpr std::array<std::pair<DType, std::string_view>, kDTypeCount> kNames = {{
    {DType::kInt64, "I64"},
    {DType::kFloat64, "F64"},
    {DType::kFloat32, "F32"},
    {DType::kUInt32, "U32"},
    {DType::kInt32, "I32"},
    {DType::kBFloat16, "BF16"},
    {DType::kFloat16, "F16"},
    {DType::kUInt16, "U16"},
    {DType::kInt16, "I16"},
    {DType::kInt8, "I8"},
    {DType::kUInt8, "U8"},
    {DType::kBool, "BOOL"},
}};

/// Dtypes of the format that DType does not have.
constexpr std::array<std::string_view, 10> kUnsupported = {
    "U64",     "C64",     "F8_E5M2",     "F8_E4M3", "F8_E8M0",
    "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F4",      "F8_E5M2FNUZ"};

std::size_t PlaceOf(DType dtype) {
  const auto found = std::find_if(kNames.begin(), kNames.end(),
                                  [&](const auto& entry) { return entry.first == dtype; });
  return static_cast<std::size_t>(found - kNames.begin());
}

StatusOr<DType> DTypeOf(std::string_view text) {
  for (const auto& [dtype, name] : kNames)
    if (name == text) return dtype;
  if (std::find(kUnsupported.begin(), kUnsupported.end(), text) != kUnsupported.end())
    return UnimplementedError("its dtype ", text, " is not supported");
  return DataLossError("its dtype \"", text, "\" is unknown");
}

/// Receives the events of the JSON parser. Its states are the places where a value may stand; the
/// depth is bounded by them, and every repeated key is seen.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(SafetensorsHeader& header) : header_(header) {}

  const Status& status() const { return status_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(double, const std::string&) override { return Unexpected("a fraction"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool number_integer(std::int64_t) override { return Unexpected("a negative number"); }

  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return Unexpected("a number too large");
    if (place_ == Place::kShape) {
      if (tensor_.shape.size() == kMaxDimensions)
        return Fail("has more than ", kMaxDimensions, " dimensions");
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::kOffsets) {
      if (offsets_.size() == 2) return Fail("has more than two data_offsets");
      offsets_.push_back(static_cast<std::int64_t>(value));
    } else {
      return Unexpected("a number");
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::kField || key_ != "dtype") return Unexpected("a string");
    StatusOr<DType> dtype = DTypeOf(value);
    if (!dtype.ok()) {
      status_ = Annotate(dtype.status(), StrCat("tensor \"", tensor_.name, "\""));
      return false;
    }
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop) {
      place_ = tensor_.name == kMetadataKey ? Place::kMetadata : Place::kField;
      fields_.clear();
      offsets_.clear();
      tensor_.shape.clear();
    } else {
      return Unexpected("an object");
    }
    return true;
  }

  bool key(std::string& key) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(key).second) return Repeated(key);
      tensor_.name = std::move(key);
      return true;
    }
    if (!fields_.insert(key).second) return Repeated(key);
    key_ = std::move(key);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kField) {
      if (fields_ != std::set<std::string>{"data_offsets", "dtype", "shape"})
        return Fail("must have dtype, shape and data_offsets, and nothing else");
      if (offsets_.size() != 2) return Fail("has fewer than two data_offsets");
      tensor_.begin_bytes = offsets_[0];
      tensor_.end_bytes = offsets_[1];
      header_.tensors.push_back(tensor_);
    }
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kField && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kField && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return Unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kField;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    status_ = DataLossError("the header is not JSON at byte ", position);
    return false;
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kField, kShape, kOffsets, kEnd };

  template <typename... Parts>
  bool Fail(const Parts&... parts) {
    status_ = DataLossError("tensor \"", tensor_.name, "\" ", parts...);
    return false;
  }
  bool Unexpected(std::string_view what) {
    if (place_ == Place::kStart) {
      status_ = DataLossError("the header is ", what, ", not an object");
      return false;
    }
    return Fail("has ", what, " where none may stand");
  }
  bool Repeated(std::string_view key) {
    status_ = DataLossError("the key \"", key, "\" is there twice");
    return false;
  }

  SafetensorsHeader& header_;
  Status status_;
  Place place_ = Place::kStart;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  std::string key_;
  TensorInfo tensor_;  // being read
  std::vector<std::int64_t> offsets_;
};

Status CheckLayout(std::vector<TensorInfo>& tensors, std::int64_t data_bytes) {
  // By both ends, so that an empty tensor comes before the one that begins where it stands.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin_bytes, a.end_bytes) < std::pair(b.begin_bytes, b.end_bytes);
  });
  std::int64_t position = 0;
  for (const TensorInfo& tensor : tensors) {
    const StatusOr<Bytes> bytes = BytesOfShape(tensor.dtype, tensor.shape);
    const std::string what =
        StrCat("tensor \"", tensor.name, "\" (", DescribeTensor(tensor.dtype, tensor.shape),
               ") at bytes ", tensor.begin_bytes, " to ", tensor.end_bytes);
    if (!bytes.ok()) return DataLossError(what, ": ", Message(bytes.status()));
    if (tensor.end_bytes < tensor.begin_bytes || tensor.bytes() != *bytes)
      return DataLossError(what, " should have ", *bytes, " bytes");
    if (tensor.begin_bytes != position) {
      return DataLossError(what,
                           tensor.begin_bytes < position ? " overlaps" : " leaves a hole after",
                           " the one before, which ends at ", position);
    }
    position = tensor.end_bytes;
  }
  if (position > data_bytes) {
    return DataLossError("the file is truncated: its tensors have ", position, " bytes, of which ",
                         data_bytes, " are there");
  }
  if (position < data_bytes) {
    return DataLossError("the file has ", data_bytes - position, " bytes after its last tensor");
  }
  return OkStatus();
}

}  // namespace

StatusOr<Bytes> BytesOfShape(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = SizeOf(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0) return InvalidArgumentError("a size of the shape is ", size);
    if (__builtin_mul_overflow(bytes, size, &bytes))
      return InvalidArgumentError("the shape has more bytes than a file can");
  }
  return Bytes(bytes);
}

std::string DescribeTensor(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text = StrCat(kNames[PlaceOf(dtype)].second, " [");
  for (std::size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, std::int64_t data_bytes) {
  // The parser takes a zero byte for the end of its input and skips a byte-order mark; in a header
  // both would hide bytes from one reader and show them to another.
  if (json.find('\0') != std::string_view::npos)
    return DataLossError("the header holds a zero byte");
  if (json.starts_with("\xEF\xBB\xBF"))
    return DataLossError("the header begins with a byte-order mark");
  SafetensorsHeader header;
  Builder builder(header);
  if (!nlohmann::json::sax_parse(json, &builder)) return builder.status();
  AIT_RETURN_IF_ERROR(CheckLayout(header.tensors, data_bytes));
  return header;
}

StatusOr<std::string> FormatSafetensorsHeader(SafetensorsHeader& header) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::pair(PlaceOf(a.dtype), std::string_view(a.name)) <
                     std::pair(PlaceOf(b.dtype), std::string_view(b.name));
            });
  std::set<std::string_view> names = {kMetadataKey};
  std::int64_t position = 0;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json[std::string(kMetadataKey)] = header.metadata;
  // Appended, not looked up: a lookup in an ordered object is linear.
  auto& members = json.get_ref<nlohmann::ordered_json::object_t&>();
  for (TensorInfo& tensor : header.tensors) {
    if (!names.insert(tensor.name).second) {
      return InvalidArgumentError(
          "the name \"", tensor.name,
          tensor.name == kMetadataKey ? "\" is reserved" : "\" is there twice");
    }
    const StatusOr<Bytes> bytes = BytesOfShape(tensor.dtype, tensor.shape);
    if (!bytes.ok()) return Annotate(bytes.status(), StrCat("tensor \"", tensor.name, "\""));
    tensor.begin_bytes = position;
    if (__builtin_add_overflow(position, bytes->value(), &position))
      return InvalidArgumentError("the tensors have more bytes than a file can");
    tensor.end_bytes = position;
    members.push_back(
        {tensor.name, nlohmann::ordered_json{{"dtype", kNames[PlaceOf(tensor.dtype)].second},
                                             {"shape", tensor.shape},
                                             {"data_offsets", {tensor.begin_bytes, position}}}});
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception&) {
    return InvalidArgumentError("a name or the metadata is not UTF-8");
  }
  text.resize(static_cast<std::size_t>(RoundUp(static_cast<std::int64_t>(text.size()), 8)), ' ');
  if (static_cast<std::int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return ResourceExhaustedError("the header would have ", text.size(), " bytes, allowed are ",
                                  kMaxSafetensorsHeaderBytes,
                                  "; split the tensors over several files");
  }
  return text;
}

}  // namespace ait::inline v0::internal
