// SPDX-License-Identifier: Apache-2.0
#include "data/format/tar_walk_internal.h"

#include "data/format/object_window_internal.h"

namespace ait::inline v0::internal {
Status AtOffset(const ObjectInfo& info, std::int64_t offset, const Status& status) {
  return Annotate(status, StrCat(info.url, " at byte ", offset));
}

Status CheckTarSize(const ObjectInfo& info) {
  if (info.size_bytes > 0 && info.size_bytes % kTarBlock == 0) return OkStatus();
  return DataLossError(info.url, " has ", info.size_bytes,
                       " bytes, a tar has whole blocks of 512: truncated, or not a tar");
}

Status TarEndsWithoutMark(const ObjectInfo& info) {
  return DataLossError(info.url, " ends at byte ", info.size_bytes,
                       " without the two zero blocks that end a tar: truncated");
}

Status TarLoneZeroBlock(const ObjectInfo& info, std::int64_t offset) {
  return DataLossError(info.url, " at byte ", offset,
                       ": a single zero block, two end a tar: damaged");
}

Status TarMemberBeyondEnd(const ObjectInfo& info, std::int64_t offset, const TarMember& member) {
  return DataLossError(info.url, " at byte ", offset, ": '", member.name, "' of ",
                       member.size_bytes, " bytes lies beyond the end, at ", info.size_bytes,
                       ": truncated");
}

Status WalkTar(const StoredObject& object, std::int64_t begin,
               const std::function<Status(std::int64_t, const TarMember&)>& visit) {
  const ObjectInfo& info = object.info();
  AIT_RETURN_IF_ERROR(CheckTarSize(info));
  ObjectWindow window(object);
  TarParser parser;
  TarMember member;
  std::int64_t at = begin;
  std::int64_t zero_blocks = 0;
  while (at < info.size_bytes) {
    std::int64_t need = kTarBlock;
    while (true) {
      AIT_ASSIGN_OR_RETURN(const auto bytes, window.At(at, need));
      StatusOr<TarStep> step = parser.Parse(bytes, member);
      if (!step.ok()) return AtOffset(info, at, step.status());
      if (*step == TarStep::kNeedBytes) {
        const std::int64_t rest = info.size_bytes - at;
        if (parser.need_bytes() > rest) return TarEndsWithoutMark(info);
        need = NextTarNeed(parser.need_bytes(), rest);
        continue;
      }
      if (*step == TarStep::kZeroBlock) {
        ++zero_blocks;
        at += kTarBlock;
        break;
      }
      if (zero_blocks == 1) return TarLoneZeroBlock(info, at - kTarBlock);
      zero_blocks = 0;
      if (member.total_bytes() > info.size_bytes - at) return TarMemberBeyondEnd(info, at, member);
      AIT_RETURN_IF_ERROR(visit(at, member));
      at += member.total_bytes();
      break;
    }
  }
  return zero_blocks >= 2 ? OkStatus() : TarEndsWithoutMark(info);
}

}  // namespace ait::inline v0::internal
