// SPDX-License-Identifier: Apache-2.0
// LitData chunks with their index.json, all numbers little-endian unless said otherwise:
//   u32 n | u32 offset[n + 1], from the start of the chunk | items
// An item is the u32 size of each leaf and then the leaves; the index says what they are
// ("data_format") and, for dictionaries, how they are called ("data_spec").
// Source: github.com/Lightning-AI/litData 0.2.76, streaming/writer.py and serializers.py.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "ait/data/decode/compress.h"
#include "data/format/format_entry_internal.h"
#include "data/format/format_util_internal.h"
#include "data/format/index_json_internal.h"
#include "data/format/shard_list_internal.h"
#include "data/json_internal.h"
#include "data/little_endian_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kMaxRecords = std::int64_t{1} << 32;

struct Leaf {
  enum class Kind { kBytes, kText, kNumber, kLine, kNumpy, kTensor };
  std::string name;
  Kind kind = Kind::kBytes;
  std::optional<NumberType> type;  // of a number and of a line
};

// litdata/constants.py: numpy's scalar types in its order, and a table of torch's.
std::optional<NumberType> NumpyType(std::uint32_t code) {
  constexpr std::array<std::string_view, 14> kNames = {
      "int8",   "int16",   "int32",   "int64",   "uint8", "uint16", "uint32",
      "uint64", "float16", "float32", "float64", "",      "",       "bool"};
  if (code >= kNames.size() || kNames[code].empty()) return std::nullopt;
  return NumberTypeFromName(kNames[code]);
}

std::optional<NumberType> TorchType(std::uint32_t code) {
  constexpr std::array<std::string_view, 21> kNames = {
      "float32", "float32", "float64", "float64",  "",      "",     "",
      "",        "float16", "float16", "bfloat16", "uint8", "int8", "int16",
      "int16",   "int32",   "int32",   "int64",    "int64", "bool", "uint16"};
  if (code >= kNames.size() || kNames[code].empty()) return std::nullopt;
  return NumberTypeFromName(kNames[code]);
}

StatusOr<Leaf> ParseLeaf(std::string_view format) {
  Leaf leaf;
  const std::string_view kind = format.substr(0, format.find(':'));
  if (kind == "bytes" || kind == "jpeg" || kind == "file" || kind == "image" ||
      kind == "jpeg_array" || kind == "tifffile" || kind == "video" || kind == "audio") {
    return leaf;
  }
  if (kind == "str" || kind == "string") {
    leaf.kind = Leaf::Kind::kText;
  } else if (kind == "int") {
    leaf.kind = Leaf::Kind::kNumber;
    leaf.type = NumberTypeFromName("int64");
  } else if (kind == "float") {
    leaf.kind = Leaf::Kind::kNumber;
    leaf.type = NumberTypeFromName("float64");
  } else if (kind == "bool") {
    leaf.kind = Leaf::Kind::kNumber;
    leaf.type = NumberTypeFromName("bool");
  } else if (kind == "numpy") {
    leaf.kind = Leaf::Kind::kNumpy;
  } else if (kind == "tensor") {
    leaf.kind = Leaf::Kind::kTensor;
  } else if (kind == "no_header_numpy" || kind == "no_header_tensor") {
    leaf.kind = Leaf::Kind::kLine;
    const std::string_view digits = format.substr(std::min(format.size(), kind.size() + 1));
    std::uint32_t code = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code);
    if (result.ec == std::errc() && result.ptr == digits.data() + digits.size()) {
      leaf.type = kind == "no_header_numpy" ? NumpyType(code) : TorchType(code);
    }
    if (!leaf.type) return UnimplementedError("the leaf \"", format, "\" has a dtype not known");
  } else if (kind == "pickle") {
    return UnimplementedError("a leaf is a pickle, which runs code when it is read; refused");
  } else {
    return UnimplementedError("the leaf \"", format, "\" is not read");
  }
  return leaf;
}

// [1, {"type": "builtins.dict", "context": "[names]", "children_spec": […]}] in a text. A leaf has
// the type null; a dictionary gives names, any other container numbers.
bool NameLeaves(const nlohmann::json& spec, const std::string& prefix,
                std::vector<std::string>& names) {
  if (!spec.is_object()) return false;
  const auto type = spec.find("type");
  const auto children = spec.find("children_spec");
  if (type == spec.end() || children == spec.end() || !children->is_array()) return false;
  if (type->is_null()) {
    names.push_back(prefix.empty() ? "data" : prefix);
    return children->empty();
  }
  nlohmann::json keys;
  const auto context = spec.find("context");
  if (type->is_string() && type->get_ref<const std::string&>().ends_with("dict") &&
      context != spec.end() && context->is_string()) {
    keys = nlohmann::json::parse(context->get_ref<const std::string&>(), nullptr, false);
  }
  for (std::size_t i = 0; i < children->size(); ++i) {
    const bool is_named = keys.is_array() && i < keys.size() && keys[i].is_string();
    const std::string name = is_named ? keys[i].get<std::string>() : StrCat(i);
    if (!NameLeaves((*children)[i], prefix.empty() ? name : prefix + "." + name, names)) {
      return false;
    }
  }
  return true;
}

StatusOr<std::vector<Leaf>> ParseConfig(const nlohmann::json& config) {
  const auto formats = config.find("data_format");
  if (formats == config.end() || !formats->is_array()) {
    return DataLossError("\"data_format\" is no list");
  }
  const auto is_set = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && !found->is_null();
  };
  if (is_set("encryption")) return UnimplementedError("its chunks are encrypted");
  if (is_set("compression_level") || is_set("ipc_compression")) {
    return UnimplementedError(
        "its items are compressed within the chunks; write it with compression_level=\"chunk\"");
  }
  const auto loader = config.find("item_loader");
  if (loader != config.end() && loader->is_string() && *loader != "PyTreeLoader") {
    return UnimplementedError("its item_loader is ", loader->get<std::string>(),
                              "; PyTreeLoader is read");
  }
  std::vector<std::string> names;
  const auto spec = config.find("data_spec");
  if (spec != config.end() && spec->is_string()) {
    const auto& text = spec->get_ref<const std::string&>();
    AIT_RETURN_IF_ERROR(CheckJsonDepth(text));
    const nlohmann::json tree = nlohmann::json::parse(text, nullptr, false);
    if (!tree.is_array() || tree.size() != 2 || !NameLeaves(tree[1], "", names)) names.clear();
  }
  std::vector<Leaf> leaves;
  for (std::size_t i = 0; i < formats->size(); ++i) {
    if (!(*formats)[i].is_string()) return DataLossError("\"data_format\" is no list of texts");
    AIT_ASSIGN_OR_RETURN(Leaf leaf, ParseLeaf((*formats)[i].get_ref<const std::string&>()));
    leaf.name = names.size() == formats->size() ? names[i] : StrCat(i);
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

Status AddArray(const Leaf& leaf, const ByteView& value, SampleBuilder& builder) {
  if (leaf.kind == Leaf::Kind::kLine) {
    const std::size_t size = static_cast<std::size_t>(SizeOf(leaf.type->dtype));
    if (value.size_bytes() % size != 0) return DataLossError("its bytes are no whole numbers");
    const auto count = static_cast<std::int64_t>(value.size_bytes() / size);
    return builder.AddArray(leaf.name, *leaf.type, std::span(&count, 1), value);
  }
  // u32 dtype, u32 dimensions, u32 sizes; a tensor's are big-endian.
  const bool is_tensor = leaf.kind == Leaf::Kind::kTensor;
  const auto number = [&](std::size_t offset) {
    const auto word = LoadLittleEndian<std::uint32_t>(value.bytes(), offset);
    return is_tensor ? __builtin_bswap32(word) : word;
  };
  if (value.size_bytes() < 8) return DataLossError("it is cut short");
  const std::optional<NumberType> type = is_tensor ? TorchType(number(0)) : NumpyType(number(0));
  const std::size_t dimensions = number(4);
  if (!type) return UnimplementedError("its dtype ", number(0), " is not known");
  if (dimensions > 64 || value.size_bytes() < 8 + dimensions * 4) {
    return DataLossError("it is cut short");
  }
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < dimensions; ++i) shape.push_back(number(8 + i * 4));
  const std::size_t begin = 8 + dimensions * 4;
  const std::int64_t stated = ArrayBytes(type->dtype, shape);
  if (stated < 0 || value.size_bytes() - begin != static_cast<std::size_t>(stated)) {
    return DataLossError("it has ", value.size_bytes() - begin, " bytes, which its shape does not");
  }
  return builder.AddArray(leaf.name, *type, shape,
                          value.Slice(begin, static_cast<std::size_t>(stated)));
}

Status AddLeaf(const Leaf& leaf, const ByteView& value, SampleBuilder& builder) {
  switch (leaf.kind) {
    case Leaf::Kind::kBytes:
      builder.AddBytes(leaf.name, value);
      return OkStatus();
    case Leaf::Kind::kText:
      if (!IsUtf8(value.text())) return InvalidArgumentError("it is not UTF-8");
      builder.AddBytes(leaf.name, value, FieldKind::kText);
      return OkStatus();
    case Leaf::Kind::kNumber:
      if (value.size_bytes() != static_cast<std::size_t>(SizeOf(leaf.type->dtype))) {
        return DataLossError("it has ", value.size_bytes(), " bytes");
      }
      return builder.AddArray(leaf.name, *leaf.type, {}, value);
    default:
      return AddArray(leaf, value, builder);
  }
}

class Chunk final : public ShardReader {
 public:
  Chunk(std::shared_ptr<const StoredObject> object, std::vector<std::uint32_t> offsets,
        std::shared_ptr<const std::vector<Leaf>> leaves, std::int64_t max_record_bytes)
      : object_(std::move(object)),
        offsets_(std::move(offsets)),
        leaves_(std::move(leaves)),
        max_record_bytes_(max_record_bytes) {}

  std::string_view format() const override { return "litdata"; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override {
    return static_cast<std::int64_t>(offsets_.size()) - 1;
  }
  RecordExtent extent(std::int64_t record) const override {
    const auto at = static_cast<std::size_t>(record);
    return {.offset_bytes = offsets_[at], .length_bytes = offsets_[at + 1] - offsets_[at]};
  }
  std::int64_t max_record_bytes() const override { return max_record_bytes_; }
  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    const Status status = DecodeItem(bytes, sample);
    if (!status.ok()) return Annotate(status, DescribeRecord(*this, record));
    SampleBuilder(sample).SetKey(record);
    return OkStatus();
  }

 private:
  Status DecodeItem(const ByteView& bytes, Sample& sample) const {
    const std::size_t size = bytes.size_bytes();
    std::size_t at = leaves_->size() * 4;
    if (static_cast<std::int64_t>(size) > max_record_bytes_) {
      return InvalidArgumentError("its ", size, " bytes are more than max_record_bytes, ",
                                  max_record_bytes_);
    }
    if (size < at) return DataLossError("its ", size, " bytes are too few for its leaves");
    SampleBuilder builder(sample);
    for (std::size_t i = 0; i < leaves_->size(); ++i) {
      const Leaf& leaf = (*leaves_)[i];
      const std::size_t length = LoadLittleEndian<std::uint32_t>(bytes.bytes(), i * 4);
      if (length > size - at) {
        return DataLossError("leaf \"", leaf.name, "\" goes beyond the end of the item");
      }
      const Status added = AddLeaf(leaf, bytes.Slice(at, length), builder);
      if (!added.ok()) return Annotate(added, StrCat("leaf \"", leaf.name, "\""));
      at += length;
    }
    if (at != size) return DataLossError(size - at, " bytes follow its last leaf");
    builder.Finish();
    return OkStatus();
  }

  const std::shared_ptr<const StoredObject> object_;
  const std::vector<std::uint32_t> offsets_;
  const std::shared_ptr<const std::vector<Leaf>> leaves_;
  const std::int64_t max_record_bytes_;
};

struct ChunkEntry {
  std::string url;
  std::int64_t size_bytes = 0;  // not compressed
  std::int64_t items = 0;
};

StatusOr<std::unique_ptr<ShardReader>> OpenChunk(const Storage& storage, const ChunkEntry& entry,
                                                 bool is_packed,
                                                 std::shared_ptr<const std::vector<Leaf>> leaves,
                                                 const ShardOptions& options) {
  AIT_ASSIGN_OR_RETURN(auto object, storage.Open(entry.url));
  if (is_packed) {
    if (entry.size_bytes > options.max_unpacked_bytes) {
      return ResourceExhaustedError(entry.url, " unpacks to ", entry.size_bytes,
                                    " bytes, allowed are ", options.max_unpacked_bytes,
                                    " (max_unpacked_bytes)");
    }
    AIT_ASSIGN_OR_RETURN(object, Unpack(*object, Compression::kZstd, Bytes(entry.size_bytes)));
  }
  const std::int64_t size = object->info().size_bytes;
  if (size != entry.size_bytes) {
    return DataLossError("LitData chunk ", entry.url, " has ", size, " bytes, the index says ",
                         entry.size_bytes);
  }
  AIT_ASSIGN_OR_RETURN(const ByteView number, ReadRange(*object, 0, 4, 4));
  const std::int64_t count = LoadLittleEndian<std::uint32_t>(number.bytes(), 0);
  const std::int64_t table_bytes = (count + 1) * 4;
  AIT_ASSIGN_OR_RETURN(const ByteView table, ReadRange(*object, 4, table_bytes, table_bytes));
  std::vector<std::uint32_t> offsets(static_cast<std::size_t>(count) + 1);
  std::memcpy(offsets.data(), table.data(), table.size_bytes());
  if (offsets.front() != 4 + table_bytes || offsets.back() != size ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    return DataLossError("LitData chunk ", entry.url,
                         " is truncated or damaged: its offsets do not lead from its table to its "
                         "end at byte ",
                         size);
  }
  return std::make_unique<Chunk>(std::move(object), std::move(offsets), std::move(leaves),
                                 options.max_record_bytes);
}

bool Match(std::span<const ObjectInfo> objects) {
  return FindIndexJson(objects) != nullptr &&
         std::any_of(objects.begin(), objects.end(), [](const ObjectInfo& object) {
           const std::string_view name = BaseName(object.url);
           return name.starts_with("chunk-") && name.ends_with(".bin");
         });
}

StatusOr<std::shared_ptr<const SampleSource>> Open(std::shared_ptr<const Storage> storage,
                                                   const std::string& url,
                                                   std::span<const ObjectInfo> objects,
                                                   const SamplesOptions& options) {
  AIT_ASSIGN_OR_RETURN(const IndexJson index, ReadIndexJson(*storage, url, objects));
  const auto config = index.json.find("config");
  if (config == index.json.end() || !config->is_object()) {
    return DataLossError("LitData index of ", url, ": \"config\" is no object");
  }
  StatusOr<std::vector<Leaf>> leaves = ParseConfig(*config);
  if (!leaves.ok()) return Annotate(leaves.status(), StrCat("LitData index of ", url));
  const auto compression = config->find("compression");
  bool is_packed = false;
  if (compression != config->end() && compression->is_string()) {
    const auto& name = compression->get_ref<const std::string&>();
    is_packed = name == "zstd" || name.starts_with("zstd:");
    if (!is_packed) {
      return UnimplementedError("LitData index of ", url, ": the compression ", name,
                                " is not read; zstd is");
    }
  }
  JsonReader reader;
  auto entries = std::make_shared<std::vector<ChunkEntry>>();
  std::vector<ListedShard> listed;
  std::int64_t total = 0;
  for (const nlohmann::json& item : reader.Array(index.json, "chunks")) {
    const std::string name = reader.Text(item, "filename");
    ChunkEntry entry = {.url = index.directory + name,
                        .size_bytes = reader.Integer(item, "chunk_bytes"),
                        .items = reader.Integer(item, "chunk_size")};
    if (!reader.complaint().empty()) break;
    if (!IsNameBelow(name) || entry.items > kMaxRecords) {
      return DataLossError("LitData index of ", url, ": chunk \"", name,
                           "\" has a name or a size that cannot be");
    }
    total += entry.items;
    listed.push_back({.url = entry.url,
                      .sample_count = entry.items,
                      .size_bytes = entry.size_bytes,
                      .held_bytes = is_packed ? entry.size_bytes : 4 * entry.items});
    entries->push_back(std::move(entry));
  }
  if (!reader.complaint().empty()) {
    return DataLossError("LitData index of ", url, ": ", reader.complaint());
  }
  const auto shared = std::make_shared<const std::vector<Leaf>>(*std::move(leaves));
  return SourceOfShards(
      {.name = url,
       .digest = Fold(static_cast<std::uint64_t>(total), index.crc32c),
       .version = VersionOf(objects)},
      std::move(listed),
      [storage, entries, is_packed, shared, shard_options = options.shard](std::size_t i) {
        return OpenChunk(*storage, (*entries)[i], is_packed, shared, shard_options);
      });
}

}  // namespace

extern const CollectionFormat kLitDataCollection;
const CollectionFormat kLitDataCollection = {
    .name = "litdata", .summary = "LitData chunks", .match = Match, .open = Open};

}  // namespace internal
}  // namespace ait::inline v0
