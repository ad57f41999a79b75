// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_TAR_WALK_INTERNAL_H_
#define AIT_DATA_FORMAT_TAR_WALK_INTERNAL_H_

// A walk over the headers of a tar that reads little else.

#include <cstdint>
#include <functional>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"
#include "data/format/tar_header_internal.h"

namespace ait::inline v0 {
namespace internal {

/// Calls `visit` for every member from `begin` on, with the offset of its first header. Archives
/// may follow each other; the last must end with the mark of the end.
/// **Errors.** DataLoss: damaged or truncated; InvalidArgument: not read; those of the object and
/// of `visit`. The text names the object and the offset.
Status WalkTar(const StoredObject& object, std::int64_t begin,
               const std::function<Status(std::int64_t offset, const TarMember& member)>& visit);

/// Bytes to bring together for the next call of a parser that needs `need_bytes` of the `rest_bytes`
/// (no fewer) that are there. It begins anew each time, so that a long chain of headers takes steps
/// that double.
constexpr std::int64_t NextTarNeed(std::int64_t need_bytes, std::int64_t rest_bytes) {
  constexpr std::int64_t kSmallBytes = 16 << 10;
  if (need_bytes <= kSmallBytes) return need_bytes;
  return need_bytes > rest_bytes / 2 ? rest_bytes : 2 * need_bytes;
}

/// An error if an archive of this size cannot be whole.
Status CheckTarSize(const ObjectInfo& info);

/// Errors of the end of an archive, alike in the walk and in the stream.
Status TarEndsWithoutMark(const ObjectInfo& info);
Status TarLoneZeroBlock(const ObjectInfo& info, std::int64_t offset);
Status TarMemberBeyondEnd(const ObjectInfo& info, std::int64_t offset, const TarMember& member);
/// What the parser or the rules say about the member at `offset`.
Status AtOffset(const ObjectInfo& info, std::int64_t offset, const Status& status);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_TAR_WALK_INTERNAL_H_
