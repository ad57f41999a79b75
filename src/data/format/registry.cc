// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "ait/data/decode/compress.h"
#include "ait/data/format/formats.h"
#include "data/format/format_entry_internal.h"
#include "data/format/unpacked_internal.h"

namespace ait::inline v0 {
namespace internal {

// One line for each format, declared here because nobody else needs their names.
extern const ShardFormat kArrowFormat;
extern const ShardFormat kCsvFormat;
extern const ShardFormat kIdxFormat;
extern const ShardFormat kJsonLinesFormat;
extern const ShardFormat kLlmcFormat;
extern const ShardFormat kMdsFormat;
extern const ShardFormat kNpyFormat;
extern const ShardFormat kNpzFormat;
extern const ShardFormat kParquetFormat;
extern const ShardFormat kSafetensorsFormat;
extern const ShardFormat kTextFormat;
extern const ShardFormat kTfrecordFormat;
extern const ShardFormat kWebDatasetFormat;
extern const CollectionFormat kFolderCollection;
extern const CollectionFormat kIdxPairFormat;
extern const CollectionFormat kLitDataCollection;
extern const CollectionFormat kMdsCollection;
extern const CollectionFormat kMegatronCollection;

std::span<const ShardFormat* const> ShardFormats() {
  static constexpr auto kFormats = std::to_array<const ShardFormat*>({
      &kArrowFormat,
      &kCsvFormat,
      &kIdxFormat,
      &kJsonLinesFormat,
      &kLlmcFormat,
      &kMdsFormat,
      &kNpyFormat,
      &kNpzFormat,
      &kParquetFormat,
      &kSafetensorsFormat,
      &kTextFormat,
      &kTfrecordFormat,
      &kWebDatasetFormat,
  });
  return kFormats;
}

// The folder of single files comes last: it takes what no other does.
std::span<const CollectionFormat* const> CollectionFormats() {
  static constexpr auto kFormats = std::to_array<const CollectionFormat*>({
      &kIdxPairFormat,
      &kLitDataCollection,
      &kMdsCollection,
      &kMegatronCollection,
      &kFolderCollection,
  });
  return kFormats;
}

const ShardFormat* ShardFormatNamed(std::string_view name) {
  const auto formats = ShardFormats();
  const auto found = std::find_if(formats.begin(), formats.end(),
                                  [&](const ShardFormat* format) { return format->name == name; });
  return found == formats.end() ? nullptr : *found;
}

std::string ShardFormatNames() {
  std::string names;
  for (const ShardFormat* format : ShardFormats()) {
    names += StrCat(names.empty() ? "" : ", ", format->name);
  }
  return names;
}

}  // namespace internal

namespace {

constexpr std::size_t kHeadBytes = 4096;

const internal::ShardFormat* Guess(std::string_view url, std::span<const std::byte> head) {
  const internal::ShardFormat* best = nullptr;
  int best_match = 0;
  for (const internal::ShardFormat* format : internal::ShardFormats()) {
    const int match = format->match(url, head);
    if (match > best_match) {
      best = format;
      best_match = match;
    }
  }
  return best;
}

}  // namespace

StatusOr<std::unique_ptr<ShardReader>> OpenShard(std::shared_ptr<const StoredObject> object,
                                                 const ShardOptions& options,
                                                 std::shared_ptr<const StoredObject> index) {
  const internal::ShardFormat* format = internal::ShardFormatNamed(options.format);
  const std::string url = object->info().url;
  // One read tells both. A shard of a stated format with its index is spared it, unless its name
  // says that it is compressed.
  if (options.format.empty() || index == nullptr || WithoutCompressionSuffix(url) != url) {
    AIT_ASSIGN_OR_RETURN(std::vector<std::byte> head, internal::FileHead(*object, kHeadBytes));
    if (const Compression compression = CompressionOf(head); compression != Compression::kNone) {
      AIT_ASSIGN_OR_RETURN(object, Unpack(*object, compression, Bytes(options.max_unpacked_bytes)));
      AIT_ASSIGN_OR_RETURN(head, internal::FileHead(*object, kHeadBytes));
    }
    if (options.format.empty()) format = Guess(url, head);
  }
  if (format == nullptr) {
    return InvalidArgumentError(
        object->info().url, " is of no known format",
        options.format.empty() ? "" : StrCat(": there is no '", options.format, "'"),
        "; known: ", internal::ShardFormatNames());
  }
  return format->open(std::move(object), options, std::move(index));
}

StatusOr<std::string_view> FormatOf(const StoredObject& object) {
  AIT_ASSIGN_OR_RETURN(const std::vector<std::byte> head,
                       internal::UnpackedHead(object, kHeadBytes));
  const internal::ShardFormat* format = Guess(object.info().url, head);
  return format == nullptr ? std::string_view() : format->name;
}

std::vector<FormatInfo> KnownFormats() {
  std::vector<FormatInfo> known;
  for (const internal::ShardFormat* format : internal::ShardFormats()) {
    known.push_back(
        {.name = format->name, .extension = format->extension, .summary = format->summary});
  }
  for (const internal::CollectionFormat* format : internal::CollectionFormats()) {
    known.push_back({.name = format->name, .is_collection = true, .summary = format->summary});
  }
  return known;
}

StatusOr<std::unique_ptr<ShardWriter>> CreateShard(const std::string& path,
                                                   const ShardWriterOptions& options) {
  const internal::ShardFormat* format = internal::ShardFormatNamed(options.format);
  if (format == nullptr) {
    return InvalidArgumentError("there is no format '", options.format,
                                "'; known: ", internal::ShardFormatNames());
  }
  if (format->create == nullptr) {
    return UnimplementedError(options.format, " is only read, not written");
  }
  return format->create(path, options);
}

}  // namespace ait::inline v0
