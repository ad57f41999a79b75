// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_INDEX_H_
#define AIT_DATA_FORMAT_INDEX_H_

// The index beside a shard: where every record lies, and a checksum of each.
//
// Formats without a table of their own (WebDataset tars, TFRecord) get one in a file beside them,
// "00000.tar.aitidx" for "00000.tar". With it a shard is opened by one small read and its records
// are read at random; without it the headers of the whole shard are read first. The checksums
// find what the format itself cannot: changed bytes within a file of a tar.
//
// Writers of ait write it. For shards of others:
//
//   AIT_ASSIGN_OR_RETURN(ShardIndex index, BuildIndex(*object));       // reads all of the shard
//   AIT_RETURN_IF_ERROR(WriteFileDurably(IndexPath("00000.tar"), SerializeIndex(index)));
//
// docs/webdataset.md describes the file to the byte.
// **Thread-safety.** A value, as a std::vector.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

struct ShardIndex {
  std::string format;            // "webdataset", "tfrecord"
  std::int64_t shard_bytes = 0;  // of the whole shard
  KeyRule key_rule = KeyRule::kFirstDot;
  std::vector<RecordExtent> extents;  // ascending, none overlaps another
  /// CRC-32C of the bytes of each record; empty if they were not read.
  std::vector<std::uint32_t> checksums;
};

/// What the first bytes of an index say, enough to open a collection of many shards.
struct ShardIndexHeader {
  std::string format;
  std::int64_t shard_bytes = 0;
  std::int64_t record_count = 0;
  KeyRule key_rule = KeyRule::kFirstDot;
  bool has_checksums = false;
  std::uint32_t table_checksum = 0;  // of all that follows the header
};
inline constexpr std::int64_t kIndexHeaderBytes = 64;

/// The path or URL of the index of a shard.
std::string IndexPath(std::string_view shard);

/// The bytes of the file.
std::string SerializeIndex(const ShardIndex& index);

/// Reads an index. **Errors.** DataLoss: damaged, truncated, or with bytes too many;
/// InvalidArgument: not an index, or of a later version. `url` is for the text.
StatusOr<ShardIndex> ParseIndex(std::span<const std::byte> bytes, std::string_view url);
/// Reads its first kIndexHeaderBytes bytes. `file_bytes` is the size of the whole index, which must
/// fit. **Errors.** As `ParseIndex`.
StatusOr<ShardIndexHeader> ParseIndexHeader(std::span<const std::byte> bytes,
                                            std::int64_t file_bytes, std::string_view url);

/// Reads a whole shard and indexes it, with checksums. **Blocks.** **Errors.** Those of
/// `OpenShard`; Unimplemented: the format has a table of its own, or the shard is compressed.
StatusOr<ShardIndex> BuildIndex(std::shared_ptr<const StoredObject> object,
                                const ShardOptions& options = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_INDEX_H_
