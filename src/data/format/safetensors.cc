// SPDX-License-Identifier: Apache-2.0
// A safetensors file as data: u64 length of the header, the header (JSON), the tensors. Tensors of
// equal first dimension are the fields, in the order in which they lie in the file.
#include <utility>

#include "data/format/format_entry_internal.h"
#include "data/format/rows_internal.h"
#include "data/format/safetensors_header_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

int Match(std::string_view url, std::span<const std::byte> head) {
  if (!HasExtension(url, ".safetensors")) return 0;
  return head.size() > 8 && head[8] == std::byte{'{'} ? 2 : 1;
}

StatusOr<std::unique_ptr<ShardReader>> Open(std::shared_ptr<const StoredObject> object,
                                            const ShardOptions& options,
                                            std::shared_ptr<const StoredObject>) {
  const ObjectInfo& info = object->info();
  AIT_ASSIGN_OR_RETURN(const ByteView size, ReadRange(*object, 0, 8, 8));
  const auto header_bytes = LoadLittleEndian<std::int64_t>(size.bytes(), 0);
  AIT_ASSIGN_OR_RETURN(const ByteView text,
                       ReadRange(*object, 8, header_bytes, kMaxSafetensorsHeaderBytes));
  const std::int64_t begin = 8 + header_bytes;
  StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text.text(), info.size_bytes - begin);
  if (!header.ok()) return Annotate(header.status(), info.url);
  if (header->tensors.empty()) return InvalidArgumentError(info.url, " holds no tensors");
  std::vector<StoredArray> arrays;
  for (TensorInfo& tensor : header->tensors) {
    arrays.push_back({.name = std::move(tensor.name),
                      .type = {.dtype = tensor.dtype},
                      .shape = std::move(tensor.shape),
                      .object = object,
                      .offset_bytes = begin + tensor.begin_bytes});
  }
  return ShardOfRows("safetensors", std::move(object), std::move(arrays), options);
}

}  // namespace

extern const ShardFormat kSafetensorsFormat;
const ShardFormat kSafetensorsFormat = {.name = "safetensors",
                                        .summary = "tensors, row i of each is sample i",
                                        .match = Match,
                                        .open = Open,
                                        .create = nullptr};

}  // namespace internal
}  // namespace ait::inline v0
