// SPDX-License-Identifier: Apache-2.0
// The idx files of MNIST and its kin, all numbers big-endian:
//   u16 0 | u8 type | u8 dimensions | u32 size of each | numbers
// Sources: yann.lecun.com/exdb/mnist. One file gives the field "data"; a directory with a pair
// (PREFIX-images-idx3-ubyte, PREFIX-labels-idx1-ubyte) gives "image" and "label".
#include <algorithm>
#include <optional>
#include <utility>

#include "ait/data/decode/compress.h"
#include "data/format/format_entry_internal.h"
#include "data/format/rows_internal.h"
#include "data/format/shard_list_internal.h"
#include "data/format/unpacked_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

std::optional<NumberType> TypeOf(std::byte code) {
  switch (static_cast<int>(code)) {
    case 0x08:
      return NumberType{.dtype = DType::kUInt8};
    case 0x09:
      return NumberType{.dtype = DType::kInt8};
    case 0x0B:
      return NumberType{.dtype = DType::kInt16, .is_big_endian = true};
    case 0x0C:
      return NumberType{.dtype = DType::kInt32, .is_big_endian = true};
    case 0x0D:
      return NumberType{.dtype = DType::kFloat32, .is_big_endian = true};
    case 0x0E:
      return NumberType{.dtype = DType::kFloat64, .is_big_endian = true};
    default:
      return std::nullopt;
  }
}

StatusOr<StoredArray> OpenArray(std::shared_ptr<const StoredObject> object, std::string name) {
  const std::string& url = object->info().url;
  AIT_ASSIGN_OR_RETURN(const ByteView start, ReadRange(*object, 0, 4, 4));
  const std::span<const std::byte> magic = start.bytes();
  const std::optional<NumberType> type = TypeOf(magic[2]);
  const auto dimensions = static_cast<std::int64_t>(magic[3]);
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0} || !type || dimensions == 0) {
    return DataLossError(url, " is no idx file: its first four bytes are not of one");
  }
  AIT_ASSIGN_OR_RETURN(const ByteView sizes, ReadRange(*object, 4, dimensions * 4, 1024));
  StoredArray array{.name = std::move(name), .type = *type, .offset_bytes = 4 + dimensions * 4};
  for (std::size_t i = 0; i < sizes.size_bytes(); i += 4) {
    std::int64_t size = 0;
    for (std::size_t j = 0; j < 4; ++j) size = size << 8 | static_cast<int>(sizes.bytes()[i + j]);
    array.shape.push_back(size);
  }
  const std::int64_t stated = ArrayBytes(type->dtype, array.shape);
  const std::int64_t there = object->info().size_bytes - array.offset_bytes;
  if (stated < 0 || there != stated) {
    return DataLossError(url, " is truncated or too long: its header does not state the ", there,
                         " bytes of numbers that are there");
  }
  array.object = std::move(object);
  return array;
}

int Match(std::string_view url, std::span<const std::byte> head) {
  const bool has_magic = head.size() >= 8 && head[0] == std::byte{0} && head[1] == std::byte{0} &&
                         TypeOf(head[2]).has_value() && head[3] != std::byte{0};
  // The magic is mostly zeros: only with the name is it sure.
  return has_magic && BaseName(url).find("idx") != std::string_view::npos ? 2 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> Open(std::shared_ptr<const StoredObject> object,
                                            const ShardOptions& options,
                                            std::shared_ptr<const StoredObject>) {
  AIT_ASSIGN_OR_RETURN(StoredArray array, OpenArray(object, "data"));
  std::vector<StoredArray> arrays;
  arrays.push_back(std::move(array));
  return ShardOfRows("idx", std::move(object), std::move(arrays), options);
}

struct Pair {
  const ObjectInfo* images = nullptr;
  const ObjectInfo* labels = nullptr;
};

/// The pairs of a directory; names are "-images-idx3-ubyte" or, as some unpackers leave them,
/// "-images.idx3-ubyte".
std::vector<Pair> PairsOf(std::span<const ObjectInfo> objects) {
  const auto prefix_of = [](const ObjectInfo& object,
                            std::string_view what) -> std::optional<std::string_view> {
    const std::string_view name = WithoutCompressionSuffix(object.url);
    const std::size_t at = name.rfind(what);
    if (at == std::string_view::npos || at < DirectoryOf(name).size()) return std::nullopt;
    const std::string_view rest = name.substr(at + what.size());
    if (!rest.starts_with("-idx") && !rest.starts_with(".idx")) return std::nullopt;
    return name.substr(0, at);
  };
  std::vector<Pair> pairs;
  for (const ObjectInfo& images : objects) {
    const auto prefix = prefix_of(images, "images");
    if (!prefix) continue;
    for (const ObjectInfo& labels : objects) {
      if (prefix_of(labels, "labels") == prefix) {
        pairs.push_back({&images, &labels});
        break;
      }
    }
  }
  return pairs;
}

bool MatchPairs(std::span<const ObjectInfo> objects) {
  return objects.size() <= 64 && !PairsOf(objects).empty();
}

StatusOr<std::shared_ptr<const SampleSource>> OpenPairs(std::shared_ptr<const Storage> storage,
                                                        const std::string& url,
                                                        std::span<const ObjectInfo> objects,
                                                        const SamplesOptions& options) {
  const std::vector<Pair> pairs = PairsOf(objects);
  if (pairs.size() != 1) {
    std::string names;
    for (const Pair& pair : pairs) names += StrCat(" ", BaseName(pair.images->url));
    return InvalidArgumentError(url, " holds ", pairs.size(), " sets of images and labels:", names,
                                "; put each into a directory of its own");
  }
  std::vector<StoredArray> arrays;
  for (const auto& [info, name] :
       {std::pair(pairs[0].images, "image"), std::pair(pairs[0].labels, "label")}) {
    AIT_ASSIGN_OR_RETURN(auto object, storage->Open(info->url));
    AIT_ASSIGN_OR_RETURN(object, Unpacked(std::move(object), options.shard));
    AIT_ASSIGN_OR_RETURN(StoredArray array, OpenArray(std::move(object), name));
    arrays.push_back(std::move(array));
  }
  const auto images = arrays[0].object;
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<ShardReader> shard,
                       ShardOfRows("idx", images, std::move(arrays), options.shard));
  return SourceOfShard(url, std::move(shard), VersionOf(objects));
}

}  // namespace

extern const ShardFormat kIdxFormat;
const ShardFormat kIdxFormat = {.name = "idx",
                                .summary = "array of the MNIST family, a row is a sample",
                                .match = Match,
                                .open = Open,
                                .create = nullptr};
extern const CollectionFormat kIdxPairFormat;
const CollectionFormat kIdxPairFormat = {.name = "idx-pair",
                                         .summary = "images and labels of the MNIST family",
                                         .match = MatchPairs,
                                         .open = OpenPairs};

}  // namespace internal
}  // namespace ait::inline v0
