// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_PACKING_LOG_INTERNAL_H_
#define AIT_DATA_FORMAT_PACKING_LOG_INTERNAL_H_

// The record of a directory while shards are written into it: .packing.jsonl, held by one process.
//
// The first line says what is packed: {"format":…,"plan":<16 hex digits>,"shards":n,"version":1}.
// Then one line for each shard that is complete, in any order, appended and brought to the disk
// after the shard itself. A last line that was cut off does not count.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/write_shards.h"
#include "base/file_descriptor.h"

namespace ait::inline v0 {
namespace internal {

/// What is noted of one shard.
struct PackedShard {
  std::int64_t number = 0;
  std::string file;
  std::int64_t bytes = 0;
  std::int64_t samples = 0;
  /// Of the values of its samples; nothing if the format stores some of them in another form.
  std::optional<std::uint64_t> values;
  std::vector<LeftOutSample> left_out;
};

struct PackingPlan {
  std::string format;
  std::string prefix;  // of the names of its shards: prefix, digits, extension
  std::string extension;
  std::uint64_t digest = 0;  // of source, ranges and sizes of shards
  std::int64_t shards = 0;
};

/// The name of a shard.
std::string PackedFileName(const PackingPlan& plan, std::int64_t number);

class PackingLog {
 public:
  /// Makes the directory, locks it, and reads what an earlier run of the same plan left. Anything
  /// else there that has the name of a shard, or would be read together with the shards, is refused
  /// or removed; files that no packing writes are never removed.
  static StatusOr<PackingLog> Open(const std::string& directory, const PackingPlan& plan,
                                   ExistingShards existing);

  /// Shards that are complete, by number.
  const std::map<std::int64_t, PackedShard>& shards() const { return shards_; }
  /// Notes a shard that is complete.
  Status Add(const PackedShard& shard);

 private:
  Status Load(const PackingPlan& plan, ExistingShards existing);
  Status ClearForeign(const PackingPlan& plan, bool is_ours, const std::string& old_format,
                      ExistingShards existing) const;
  Status AppendLine(const std::string& line);

  std::string directory_;
  FileDescriptor lock_;
  FileDescriptor file_;
  std::map<std::int64_t, PackedShard> shards_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_PACKING_LOG_INTERNAL_H_
