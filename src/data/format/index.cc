// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/index.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ait/data/crc32c.h"
#include "ait/data/format/formats.h"
#include "data/format/format_entry_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace {

using internal::LoadLittleEndian;
using internal::StoreLittleEndian;

// The header, 64 bytes:
//   0  8  magic              8  4  version         12  4  flags
//  16  16 name of the format, zero-padded
//  32  8  bytes of the shard 40  8  records         48  4  CRC-32C of all after the header
//  52  8  zero               60  4  CRC-32C of bytes 0 to 59
// then u64 offset[n], u64 length[n], u32 crc32c[n] if flag 0 is set, and the mark of the end.
constexpr std::string_view kMagic("AITINDEX", 8);
constexpr std::string_view kEnd("XEDNITIA", 8);
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kHasChecksums = 1;
constexpr std::uint32_t kLastDot = 2;
constexpr std::int64_t kMaxRecords = std::int64_t{1} << 40;

std::int64_t RecordBytes(bool has_checksums) { return has_checksums ? 20 : 16; }

std::int64_t FileBytes(std::int64_t record_count, bool has_checksums) {
  return kIndexHeaderBytes + record_count * RecordBytes(has_checksums) +
         static_cast<std::int64_t>(kEnd.size());
}

std::uint32_t ChecksumOf(std::string_view text) {
  return Crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

std::string IndexPath(std::string_view shard) { return StrCat(shard, ".aitidx"); }

std::string SerializeIndex(const ShardIndex& index) {
  const std::size_t count = index.extents.size();
  const bool has_checksums = !index.checksums.empty();
  std::string out(
      static_cast<std::size_t>(FileBytes(static_cast<std::int64_t>(count), has_checksums)), '\0');
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(out));
  std::size_t at = kIndexHeaderBytes;
  for (const RecordExtent& extent : index.extents) {
    StoreLittleEndian(bytes, at, static_cast<std::uint64_t>(extent.offset_bytes));
    at += 8;
  }
  for (const RecordExtent& extent : index.extents) {
    StoreLittleEndian(bytes, at, static_cast<std::uint64_t>(extent.length_bytes));
    at += 8;
  }
  for (const std::uint32_t checksum : index.checksums) {
    StoreLittleEndian(bytes, at, checksum);
    at += 4;
  }
  out.replace(at, kEnd.size(), kEnd);
  out.replace(0, kMagic.size(), kMagic);
  StoreLittleEndian(bytes, 8, kVersion);
  StoreLittleEndian(
      bytes, 12,
      (has_checksums ? kHasChecksums : 0) | (index.key_rule == KeyRule::kLastDot ? kLastDot : 0));
  out.replace(16, std::min<std::size_t>(index.format.size(), 16), index.format, 0, 16);
  StoreLittleEndian(bytes, 32, static_cast<std::uint64_t>(index.shard_bytes));
  StoreLittleEndian(bytes, 40, static_cast<std::uint64_t>(count));
  StoreLittleEndian(bytes, 48, ChecksumOf(std::string_view(out).substr(kIndexHeaderBytes)));
  StoreLittleEndian(bytes, 60, ChecksumOf(std::string_view(out).substr(0, 60)));
  return out;
}

StatusOr<ShardIndexHeader> ParseIndexHeader(std::span<const std::byte> bytes,
                                            std::int64_t file_bytes, std::string_view url) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) {
    return InvalidArgumentError(url, " is not an index of ait: its first bytes are others");
  }
  if (bytes.size() < static_cast<std::size_t>(kIndexHeaderBytes)) {
    return DataLossError(url, " has ", bytes.size(), " bytes, the header of an index has ",
                         kIndexHeaderBytes, ": truncated");
  }
  const auto version = LoadLittleEndian<std::uint32_t>(bytes, 8);
  if (LoadLittleEndian<std::uint32_t>(bytes, 60) != ChecksumOf(text.substr(0, 60))) {
    return DataLossError(url,
                         ": the checksum of the header of the index is wrong; remove the "
                         "file or write it anew");
  }
  const auto flags = LoadLittleEndian<std::uint32_t>(bytes, 12);
  if (version != kVersion || (flags & ~(kHasChecksums | kLastDot)) != 0) {
    return InvalidArgumentError(url, " is an index of version ", version, " with flags ", flags,
                                "; version ", kVersion, " is read");
  }
  ShardIndexHeader header;
  const std::string_view name = text.substr(16, 16);
  header.format = name.substr(0, name.find('\0'));
  header.has_checksums = (flags & kHasChecksums) != 0;
  header.key_rule = (flags & kLastDot) != 0 ? KeyRule::kLastDot : KeyRule::kFirstDot;
  header.table_checksum = LoadLittleEndian<std::uint32_t>(bytes, 48);
  const auto shard_bytes = LoadLittleEndian<std::uint64_t>(bytes, 32);
  const auto count = LoadLittleEndian<std::uint64_t>(bytes, 40);
  if (shard_bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
      count > static_cast<std::uint64_t>(kMaxRecords)) {
    return DataLossError(url, " speaks of ", count, " records in ", shard_bytes, " bytes");
  }
  header.shard_bytes = static_cast<std::int64_t>(shard_bytes);
  header.record_count = static_cast<std::int64_t>(count);
  const std::int64_t expected = FileBytes(header.record_count, header.has_checksums);
  if (file_bytes != expected) {
    return DataLossError(url, " has ", file_bytes, " bytes, an index of ", count, " records has ",
                         expected, file_bytes < expected ? ": truncated" : "");
  }
  return header;
}

StatusOr<ShardIndex> ParseIndex(std::span<const std::byte> bytes, std::string_view url) {
  AIT_ASSIGN_OR_RETURN(const ShardIndexHeader header,
                       ParseIndexHeader(bytes, static_cast<std::int64_t>(bytes.size()), url));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (ChecksumOf(text.substr(kIndexHeaderBytes)) != header.table_checksum ||
      !text.ends_with(kEnd)) {
    return DataLossError(url,
                         ": the checksum of the table of the index is wrong; remove the file "
                         "or write it anew");
  }
  ShardIndex index;
  index.format = header.format;
  index.shard_bytes = header.shard_bytes;
  index.key_rule = header.key_rule;
  const auto count = static_cast<std::size_t>(header.record_count);
  index.extents.resize(count);
  const std::size_t lengths = kIndexHeaderBytes + 8 * count;
  std::uint64_t end = 0;
  const auto shard_bytes = static_cast<std::uint64_t>(header.shard_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const auto offset = LoadLittleEndian<std::uint64_t>(bytes, kIndexHeaderBytes + 8 * i);
    const auto length = LoadLittleEndian<std::uint64_t>(bytes, lengths + 8 * i);
    if (offset < end || offset > shard_bytes || length > shard_bytes - offset) {
      return DataLossError(url, ": record ", i, " has ", length, " bytes from byte ", offset,
                           ", the one before ends at ", end, " and the shard at ", shard_bytes);
    }
    end = offset + length;
    index.extents[i] = {static_cast<std::int64_t>(offset), static_cast<std::int64_t>(length)};
  }
  if (header.has_checksums) {
    index.checksums.resize(count);
    if (count > 0)
      std::memcpy(index.checksums.data(), bytes.data() + lengths + 8 * count, 4 * count);
  }
  return index;
}

StatusOr<ShardIndex> internal::ReadIndexOf(const ObjectInfo& shard, std::string_view format,
                                           const StoredObject& index) {
  AIT_ASSIGN_OR_RETURN(const ByteView bytes, ReadWhole(index));
  AIT_ASSIGN_OR_RETURN(ShardIndex table, ParseIndex(bytes.bytes(), index.info().url));
  if (table.format == format && table.shard_bytes == shard.size_bytes) return table;
  return DataLossError(shard.url, " is a ", format, " of ", shard.size_bytes, " bytes, its index ",
                       index.info().url, " is of a ", table.format, " of ", table.shard_bytes,
                       ": truncated or replaced; remove the index or write it anew");
}

StatusOr<ShardIndex> BuildIndex(std::shared_ptr<const StoredObject> object,
                                const ShardOptions& options) {
  ShardOptions structure = options;
  structure.check = ShardCheck::kStructure;
  AIT_ASSIGN_OR_RETURN(const std::unique_ptr<ShardReader> shard, OpenShard(object, structure));
  if (shard->format() != "webdataset" && shard->format() != "tfrecord") {
    return UnimplementedError(object->info().url, " is of format ", shard->format(),
                              ", which has a table of its own and needs no index");
  }
  ShardIndex index;
  index.format = shard->format();
  index.shard_bytes = object->info().size_bytes;
  index.key_rule = options.key_rule;
  if (&shard->object() != object.get()) {
    return UnimplementedError(object->info().url,
                              " is compressed, and a shard with an index must not be: unpack it");
  }
  constexpr std::int64_t kPieceBytes = 4 << 20;
  std::vector<std::byte> bytes;
  for (std::int64_t record = 0; record < shard->record_count(); ++record) {
    const RecordExtent extent = shard->extent(record);
    std::uint32_t checksum = 0;
    for (std::int64_t at = 0; at < extent.length_bytes; at += kPieceBytes) {
      bytes.resize(static_cast<std::size_t>(std::min(kPieceBytes, extent.length_bytes - at)));
      AIT_RETURN_IF_ERROR(object->ReadAt(extent.offset_bytes + at, bytes));
      checksum = Crc32c(bytes, checksum);
    }
    index.extents.push_back(extent);
    index.checksums.push_back(checksum);
  }
  return index;
}

}  // namespace ait::inline v0
