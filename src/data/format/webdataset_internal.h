// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_WEBDATASET_INTERNAL_H_
#define AIT_DATA_FORMAT_WEBDATASET_INTERNAL_H_

// Shards of the WebDataset format: by their table of records, and in one pass without it.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "ait/data/format/shard.h"
#include "data/format/webdataset_record_internal.h"

namespace ait::inline v0 {
namespace internal {

/// The members that hard links of one shard name. Empty until the first link is followed, which
/// walks over the whole archive. **Thread-safety.** All calls from any thread.
class TarLinks final : public LinkResolver {
 public:
  explicit TarLinks(const StoredObject& object) : object_(object) {}
  StatusOr<ByteView> Resolve(std::string_view name, std::int64_t most_bytes) const override;

 private:
  struct Place {
    std::int64_t offset_bytes = 0;
    std::int64_t size_bytes = 0;
  };
  const StoredObject& object_;
  mutable std::once_flag walked_;
  mutable Status walk_status_;
  mutable std::unordered_map<std::string, Place> places_;
};

/// Finds the records of an archive from its headers. Checks its structure to the end.
/// **Errors.** As WalkTar; InvalidArgument: the members of a sample do not lie together.
StatusOr<ShardIndex> IndexTar(const StoredObject& object, const ShardOptions& options);

/// Reads samples in one pass. With an index, its records and checksums are compared.
StatusOr<std::unique_ptr<SampleStream>> StreamTar(std::shared_ptr<const StoredObject> object,
                                                  const ShardOptions& options,
                                                  const StreamOptions& stream_options,
                                                  std::shared_ptr<const ShardIndex> index);

StatusOr<std::unique_ptr<ShardWriter>> CreateTar(const std::string& path,
                                                 const ShardWriterOptions& options);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_WEBDATASET_INTERNAL_H_
