// SPDX-License-Identifier: Apache-2.0
#include "ait/base/status.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/memory_refusal.h"

namespace ait::inline v0 {
namespace {

StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ESRCH:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return StatusCode::kResourceExhausted;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case EIO:
      return StatusCode::kDataLoss;
    case ENOSYS:
    case EOPNOTSUPP:
      return StatusCode::kUnimplemented;
    default:
      return StatusCode::kUnavailable;
  }
}

}  // namespace

namespace internal {

std::string Concatenate(std::initializer_list<std::string_view> pieces) {
  std::size_t size = 0;
  for (std::string_view piece : pieces) size += piece.size();
  std::string text;
  text.reserve(size);
  for (std::string_view piece : pieces) text += piece;
  return text;
}

Status MakeStatus(StatusCode code, std::initializer_list<std::string_view> pieces) {
  return Status(code, Concatenate(pieces));
}

Status MakeErrnoStatus(int error_number, std::initializer_list<std::string_view> what) {
  Status status(CodeOfErrno(error_number),
                Concatenate(what) + ": " + std::generic_category().message(error_number));
  return error_number == ENOMEM ? WithRefusal(std::move(status), {}) : status;
}

}  // namespace internal

std::string Message(const Status& status) { return std::string(status.message()); }

Status Annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  Status annotated(status.code(), internal::Concatenate({context, ": ", Message(status)}));
  status.ForEachPayload(
      [&](auto url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

std::string CodeName(StatusCode code) { return absl::StatusCodeToString(code); }

}  // namespace ait::inline v0
