// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "ait/data/format/formats.h"
#include "data/format/format_entry_internal.h"

namespace ait::inline v0 {
namespace internal {

// One line for each format, declared here because nobody else needs their names.
extern const ShardFormat kArrowFormat;
extern const ShardFormat kParquetFormat;
extern const ShardFormat kTfrecordFormat;
extern const ShardFormat kWebDatasetFormat;

std::span<const ShardFormat* const> ShardFormats() {
  static constexpr auto kFormats = std::to_array<const ShardFormat*>({
      &kArrowFormat,
      &kParquetFormat,
      &kTfrecordFormat,
      &kWebDatasetFormat,
  });
  return kFormats;
}

std::span<const CollectionFormat* const> CollectionFormats() {
  static constexpr std::array<const CollectionFormat*, 0> kFormats = {};
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

StatusOr<const internal::ShardFormat*> Guess(const StoredObject& object) {
  std::vector<std::byte> head(static_cast<std::size_t>(
      std::min<std::int64_t>(object.info().size_bytes, static_cast<std::int64_t>(kHeadBytes))));
  AIT_RETURN_IF_ERROR(object.ReadAt(0, head));
  const internal::ShardFormat* best = nullptr;
  int best_match = 0;
  for (const internal::ShardFormat* format : internal::ShardFormats()) {
    const int match = format->match(object.info().url, head);
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
  if (options.format.empty()) {
    AIT_ASSIGN_OR_RETURN(format, Guess(*object));
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
  AIT_ASSIGN_OR_RETURN(const internal::ShardFormat* format, Guess(object));
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
