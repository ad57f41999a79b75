// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "ait/data/decode/compress.h"
#include "data/format/unpacked_internal.h"

namespace ait::inline v0 {
namespace internal {

StatusOr<std::vector<std::byte>> FileHead(const StoredObject& object, std::size_t most_bytes) {
  std::vector<std::byte> head(static_cast<std::size_t>(
      std::min(object.info().size_bytes, static_cast<std::int64_t>(most_bytes))));
  AIT_RETURN_IF_ERROR(object.ReadAt(0, head));
  return head;
}

StatusOr<std::vector<std::byte>> UnpackedHead(const StoredObject& object, std::size_t most_bytes) {
  AIT_ASSIGN_OR_RETURN(std::vector<std::byte> head, FileHead(object, most_bytes));
  const Compression compression = CompressionOf(head);
  if (compression == Compression::kNone) return head;
  // A block of Zstandard or LZ4 may have to be there as a whole before any of it is unpacked.
  constexpr std::size_t kPackedBytes = std::size_t{512} << 10;
  AIT_ASSIGN_OR_RETURN(const std::vector<std::byte> packed, FileHead(object, kPackedBytes));
  std::vector<std::byte> unpacked(most_bytes);
  AIT_ASSIGN_OR_RETURN(const auto decompressor, Decompressor::Create(compression));
  const StatusOr<DecompressStep> step = decompressor->Run(packed, unpacked);
  if (!step.ok()) return Annotate(step.status(), object.info().url);
  unpacked.resize(step->produced);
  return unpacked;
}

StatusOr<std::shared_ptr<const StoredObject>> Unpacked(std::shared_ptr<const StoredObject> object,
                                                       const ShardOptions& options) {
  AIT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, FileHead(*object, 4));
  const Compression compression = CompressionOf(head);
  if (compression == Compression::kNone) return object;
  return Unpack(*object, compression, Bytes(options.max_unpacked_bytes));
}

}  // namespace internal
}  // namespace ait::inline v0
