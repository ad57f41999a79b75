// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_TFRECORD_INTERNAL_H_
#define AIT_DATA_FORMAT_TFRECORD_INTERNAL_H_

// TFRecord: u64 length, u32 masked CRC-32C of its 8 bytes, the data, u32 masked CRC-32C of them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "ait/data/format/shard.h"

namespace ait::inline v0 {
namespace internal {

inline constexpr std::int64_t kTfrecordHeader = 12;
inline constexpr std::int64_t kTfrecordFrame = 16;  // header, and the checksum after the data

/// The checksum that is stored for bytes: rotated and shifted, so that a checksum of data that holds
/// checksums is none of them.
std::uint32_t MaskedCrc32c(std::span<const std::byte> bytes);

/// The length in the 12 bytes of a header. **Errors.** DataLoss: its checksum is wrong, or more than
/// `rest_bytes` follow.
StatusOr<std::int64_t> ParseTfrecordHeader(std::span<const std::byte> header,
                                           std::int64_t rest_bytes);

StatusOr<std::unique_ptr<SampleStream>> StreamTfrecord(std::shared_ptr<const StoredObject> object,
                                                       const ShardOptions& options,
                                                       const StreamOptions& stream_options,
                                                       std::shared_ptr<const ShardIndex> index);

StatusOr<std::unique_ptr<ShardWriter>> CreateTfrecord(const std::string& path,
                                                      const ShardWriterOptions& options);

/// Makes a sample of a whole record, frame included. Checks both checksums. The text of an error
/// says neither file nor offset.
Status DecodeTfrecord(std::int64_t record, const ByteView& bytes, const ShardOptions& options,
                      Sample& sample);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_TFRECORD_INTERNAL_H_
