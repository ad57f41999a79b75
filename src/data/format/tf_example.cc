// SPDX-License-Identifier: Apache-2.0
#include "data/format/tf_example_internal.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace ait::inline v0::internal {
namespace {

constexpr std::string_view kKeyFeature = "__key__";

// A message that is read from front to back.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}

  struct Tag {
    std::uint64_t field = 0;
    int type = 0;
  };

  // False at the end.
  StatusOr<bool> NextTag(Tag& tag) {
    if (rest_.empty()) return false;
    AIT_ASSIGN_OR_RETURN(const std::uint64_t number, Varint());
    tag = {number >> 3, static_cast<int>(number & 7)};
    if (tag.field == 0 || tag.field > 0x1fffffff) return Bad("a field of an impossible number");
    return true;
  }

  StatusOr<std::uint64_t> Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) return Bad("it ends within a number");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) return Bad("a number of more than 64 bits");
      value |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
      if (byte < 0x80) return value;
    }
    return Bad("a number of more than 64 bits");
  }

  StatusOr<std::string_view> Bytes() {
    AIT_ASSIGN_OR_RETURN(const std::uint64_t length, Varint());
    return Fixed(length);
  }

  StatusOr<std::string_view> Fixed(std::uint64_t length) {
    if (length > rest_.size()) return Bad("a length that goes beyond the end");
    const std::string_view bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return bytes;
  }

  Status Skip(int type) {
    switch (type) {
      case 0:
        return Varint().status();
      case 1:
        return Fixed(8).status();
      case 2:
        return Bytes().status();
      case 5:
        return Fixed(4).status();
      default:
        return Bad("a kind of field that is not in use");
    }
  }

  static Status Bad(std::string_view why) { return DataLossError("no tf.train.Example: ", why); }

 private:
  std::string_view rest_;
};

enum class ValueKind { kNone, kBytes, kFloats, kInts };

struct Feature {
  std::string_view name;
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string_view> bytes;
  std::string floats;  // of 4 bytes each
  std::vector<std::int64_t> ints;
};

// BytesList, FloatList or Int64List.
Status ReadList(std::string_view message, ValueKind kind, Feature& feature) {
  if (feature.kind != ValueKind::kNone && feature.kind != kind) {
    return InvalidArgumentError("feature '", feature.name, "' has values of two kinds");
  }
  feature.kind = kind;
  Wire wire(message);
  Wire::Tag tag;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const bool is_there, wire.NextTag(tag));
    if (!is_there) return OkStatus();
    const bool is_packed = tag.type == 2;
    if (tag.field != 1) {
      AIT_RETURN_IF_ERROR(wire.Skip(tag.type));
    } else if (kind == ValueKind::kBytes && is_packed) {
      AIT_ASSIGN_OR_RETURN(const std::string_view value, wire.Bytes());
      feature.bytes.push_back(value);
    } else if (kind == ValueKind::kFloats && (is_packed || tag.type == 5)) {
      AIT_ASSIGN_OR_RETURN(const std::string_view values, is_packed ? wire.Bytes() : wire.Fixed(4));
      if (values.size() % 4 != 0) return Wire::Bad("a list of floats with a part of one");
      feature.floats += values;
    } else if (kind == ValueKind::kInts && tag.type == 0) {
      AIT_ASSIGN_OR_RETURN(const std::uint64_t value, wire.Varint());
      feature.ints.push_back(static_cast<std::int64_t>(value));
    } else if (kind == ValueKind::kInts && is_packed) {
      AIT_ASSIGN_OR_RETURN(const std::string_view values, wire.Bytes());
      Wire numbers(values);
      const char* at = values.data();
      const char* end = values.data() + values.size();
      // Every number ends with a byte below 128.
      while (at != end) {
        AIT_ASSIGN_OR_RETURN(const std::uint64_t value, numbers.Varint());
        feature.ints.push_back(static_cast<std::int64_t>(value));
        while (static_cast<unsigned char>(*at) >= 0x80) ++at;
        ++at;
      }
    } else {
      return Wire::Bad("a value of another kind than its list");
    }
  }
}

Status ReadFeature(std::string_view message, Feature& feature) {
  Wire wire(message);
  Wire::Tag tag;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const bool is_there, wire.NextTag(tag));
    if (!is_there) return OkStatus();
    if (tag.field > 3 || tag.type != 2) {
      AIT_RETURN_IF_ERROR(wire.Skip(tag.type));
      continue;
    }
    AIT_ASSIGN_OR_RETURN(const std::string_view list, wire.Bytes());
    AIT_RETURN_IF_ERROR(ReadList(list, static_cast<ValueKind>(tag.field), feature));
  }
}

// An entry of the map of features.
Status ReadEntry(std::string_view message, Feature& feature) {
  Wire wire(message);
  Wire::Tag tag;
  std::string_view value;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const bool is_there, wire.NextTag(tag));
    if (!is_there) break;
    if (tag.field <= 2 && tag.type == 2) {
      AIT_ASSIGN_OR_RETURN(const std::string_view part, wire.Bytes());
      (tag.field == 1 ? feature.name : value) = part;
    } else {
      AIT_RETURN_IF_ERROR(wire.Skip(tag.type));
    }
  }
  return ReadFeature(value, feature);
}

class Decoder {
 public:
  Decoder(const ByteView& bytes, Sample& sample) : bytes_(bytes), sample_(sample) {}

  // `depth` 0 is an Example, 1 its Features.
  Status Read(std::string_view message, int depth) {
    Wire wire(message);
    Wire::Tag tag;
    while (true) {
      AIT_ASSIGN_OR_RETURN(const bool is_there, wire.NextTag(tag));
      if (!is_there) return OkStatus();
      if (tag.field != 1) {
        AIT_RETURN_IF_ERROR(wire.Skip(tag.type));
        continue;
      }
      if (tag.type != 2) return Wire::Bad("its first field is no message");
      AIT_ASSIGN_OR_RETURN(const std::string_view part, wire.Bytes());
      if (depth == 0) {
        AIT_RETURN_IF_ERROR(Read(part, 1));
      } else {
        Feature feature;
        AIT_RETURN_IF_ERROR(ReadEntry(part, feature));
        AIT_RETURN_IF_ERROR(Take(feature));
      }
    }
  }

 private:
  ByteView View(std::string_view part) const {
    return bytes_.Slice(static_cast<std::size_t>(part.data() - bytes_.text().data()), part.size());
  }

  Status Take(const Feature& feature) {
    if (!names_.insert(feature.name).second) {
      return InvalidArgumentError("feature '", feature.name, "' is there twice");
    }
    if (feature.name == kKeyFeature && feature.kind == ValueKind::kBytes &&
        feature.bytes.size() == 1) {
      sample_.key = feature.bytes[0];
      sample_.id = -1;  // the key is no number of a record
      return OkStatus();
    }
    std::string name(feature.name);
    switch (feature.kind) {
      case ValueKind::kNone:
        sample_.fields.push_back({.name = std::move(name)});
        break;
      case ValueKind::kBytes:
        if (feature.bytes.size() == 1) {
          sample_.fields.push_back({.name = std::move(name), .value = View(feature.bytes[0])});
          break;
        }
        for (std::size_t i = 0; i < feature.bytes.size(); ++i) {
          sample_.fields.push_back({.name = StrCat(name, "/", i), .value = View(feature.bytes[i])});
        }
        break;
      case ValueKind::kFloats:
        sample_.fields.push_back(ArrayField(std::move(name), DType::kFloat32,
                                            {static_cast<std::int64_t>(feature.floats.size() / 4)},
                                            std::as_bytes(std::span(feature.floats))));
        break;
      case ValueKind::kInts:
        sample_.fields.push_back(ArrayField(std::move(name), DType::kInt64,
                                            {static_cast<std::int64_t>(feature.ints.size())},
                                            std::as_bytes(std::span(feature.ints))));
        break;
    }
    return OkStatus();
  }

  const ByteView& bytes_;
  Sample& sample_;
  std::unordered_set<std::string_view> names_;
};

void PutVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void PutMessage(std::string& out, int field, std::string_view message) {
  out += static_cast<char>(field << 3 | 2);
  PutVarint(out, message.size());
  out += message;
}

template <typename T>
void PutInts(std::string& out, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    PutVarint(out, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
}

// The Feature of a field.
Status EncodeValue(const SampleField& field, std::string& feature) {
  std::string list;
  if (field.kind != FieldKind::kArray) {
    PutMessage(list, 1, field.value.text());
    PutMessage(feature, 1, list);
    return OkStatus();
  }
  if (field.shape.size() > 1) {
    return InvalidArgumentError("field '", field.name, "' has ", field.shape.size(),
                                " dimensions, a list of an Example has one: encode it, as npy for "
                                "example");
  }
  const std::span<const std::byte> bytes = field.value.bytes();
  std::string values;
  switch (field.dtype) {
    case DType::kFloat32:
      if (!bytes.empty()) PutMessage(list, 1, field.value.text());
      PutMessage(feature, 2, list);
      return OkStatus();
    case DType::kInt64:
      PutInts<std::int64_t>(values, bytes);
      break;
    case DType::kInt32:
      PutInts<std::int32_t>(values, bytes);
      break;
    case DType::kUInt8:
      PutInts<std::uint8_t>(values, bytes);
      break;
    default:
      return InvalidArgumentError("field '", field.name,
                                  "' holds numbers that an Example has no list of: it has float32 "
                                  "and int64");
  }
  if (!values.empty()) PutMessage(list, 1, values);
  PutMessage(feature, 3, list);
  return OkStatus();
}

void PutEntry(std::string& features, std::string_view name, std::string_view feature) {
  std::string entry;
  PutMessage(entry, 1, name);
  PutMessage(entry, 2, feature);
  PutMessage(features, 1, entry);
}

}  // namespace

Status DecodeExample(const ByteView& bytes, Sample& sample) {
  sample.fields.clear();
  return Decoder(bytes, sample).Read(bytes.text(), 0);
}

StatusOr<std::string> EncodeExample(const Sample& sample) {
  std::vector<const SampleField*> fields;
  for (const SampleField& field : sample.fields) fields.push_back(&field);
  std::sort(fields.begin(), fields.end(),
            [](const SampleField* a, const SampleField* b) { return a->name < b->name; });
  std::string features;
  if (!sample.key.empty()) {
    std::string key;
    AIT_RETURN_IF_ERROR(
        EncodeValue({.name = std::string(kKeyFeature), .value = ByteView::Copy(sample.key)}, key));
    PutEntry(features, kKeyFeature, key);
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const SampleField& field = *fields[i];
    if (field.name == kKeyFeature || (i > 0 && fields[i - 1]->name == field.name)) {
      return InvalidArgumentError("sample '", sample.key, "' has a second field '", field.name,
                                  "'");
    }
    std::string feature;
    AIT_RETURN_IF_ERROR(EncodeValue(field, feature));
    PutEntry(features, field.name, feature);
  }
  std::string example;
  PutMessage(example, 1, features);
  return example;
}

}  // namespace ait::inline v0::internal
