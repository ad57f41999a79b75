// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_FORMAT_ENTRY_INTERNAL_H_
#define AIT_DATA_FORMAT_FORMAT_ENTRY_INTERNAL_H_

// The table of formats: one entry each, defined in the file of the format and listed in
// registry.cc.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "ait/data/format/shard.h"

namespace ait::inline v0 {
namespace internal {

/// A format of single files.
struct ShardFormat {
  std::string_view name;
  std::string_view extension;  // with the dot, of files that are written; empty: none are
  std::string_view summary;
  /// How sure the format is that a file is of it: 0 not at all, 1 by its name, 2 by its magic.
  /// `head` holds its first bytes, at most 4096.
  int (*match)(std::string_view url, std::span<const std::byte> head);
  StatusOr<std::unique_ptr<ShardReader>> (*open)(std::shared_ptr<const StoredObject> object,
                                                 const ShardOptions& options,
                                                 std::shared_ptr<const StoredObject> index);
  /// nullptr: only read.
  StatusOr<std::unique_ptr<ShardWriter>> (*create)(const std::string& path,
                                                   const ShardWriterOptions& options);
  /// Before the number in the names of shards that are written by the many.
  std::string_view file_prefix = {};
  /// Ends a directory of shards (their names in order), such as by an index; nullptr: nothing to do.
  Status (*finish)(const std::string& directory, std::span<const std::string> files) = nullptr;
  /// Reads in one pass without a table of records; nullptr: the shard is opened for it.
  StatusOr<std::unique_ptr<SampleStream>> (*stream)(
      std::shared_ptr<const StoredObject> object, const ShardOptions& options,
      const StreamOptions& stream_options, std::shared_ptr<const ShardIndex> index) = nullptr;
};

/// A format of directories with an index of their own.
struct CollectionFormat {
  std::string_view name;
  std::string_view summary;
  /// Whether the objects of a directory, by their names below it, are such a collection.
  bool (*match)(std::span<const ObjectInfo> objects);
  StatusOr<std::shared_ptr<const SampleSource>> (*open)(std::shared_ptr<const Storage> storage,
                                                        const std::string& url,
                                                        std::span<const ObjectInfo> objects,
                                                        const SamplesOptions& options);
};

/// Reads the index of a shard, which must be of this format and of a shard of this size.
/// **Errors.** DataLoss: damaged, or of another shard; those of the object.
StatusOr<ShardIndex> ReadIndexOf(const ObjectInfo& shard, std::string_view format,
                                 const StoredObject& index);

std::span<const ShardFormat* const> ShardFormats();
/// nullptr if there is none of that name.
const ShardFormat* ShardFormatNamed(std::string_view name);
/// "arrow, mds, …", for messages.
std::string ShardFormatNames();
std::span<const CollectionFormat* const> CollectionFormats();

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_FORMAT_ENTRY_INTERNAL_H_
