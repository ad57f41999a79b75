// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_SHARD_LIST_INTERNAL_H_
#define AIT_DATA_FORMAT_SHARD_LIST_INTERNAL_H_

// Many shards as one source, where an index says beforehand how many samples each has: a shard is
// opened when one of its samples is first asked for.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"
#include "ait/data/sample_source.h"

namespace ait::inline v0 {
namespace internal {

struct ListedShard {
  std::string url;
  std::int64_t sample_count = 0;
  std::int64_t size_bytes = 0;  // of all its samples, about
  std::int64_t held_bytes = 0;  // of memory while it is open, such as one that was unpacked
};

struct ShardListOptions {
  std::string name;
  std::uint64_t digest = 0;
  std::uint64_t version = 0;  // VersionOf its files
  /// Shards that are kept open, and memory that they may hold; the one longest unused goes first.
  std::int64_t max_open_shards = 256;
  std::int64_t max_held_bytes = std::int64_t{1} << 30;
};

/// Another one for other versions of the files.
std::uint64_t VersionOf(std::span<const ObjectInfo> objects);

/// `open` opens shard number i; it may be called from several threads at a time, for different
/// shards. A shard that has another number of records than listed is an error of its samples.
std::shared_ptr<const SampleSource> SourceOfShards(
    ShardListOptions options, std::vector<ListedShard> shards,
    std::function<StatusOr<std::unique_ptr<ShardReader>>(std::size_t)> open);

/// A single shard that is open already. Its digest covers size, number and both ends;
/// `version` is of other files that it is read from.
StatusOr<std::shared_ptr<const SampleSource>> SourceOfShard(std::string name,
                                                            std::unique_ptr<ShardReader> shard,
                                                            std::uint64_t version = 0);

/// Reads records of one shard, each with its own status; those that lie beside each other by one
/// read. `records[i]` goes to `reads[i]`, whose `id` is not touched.
void ReadRecords(const ShardReader& shard, std::span<const std::int64_t> records,
                 std::span<SampleRead* const> reads);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_SHARD_LIST_INTERNAL_H_
