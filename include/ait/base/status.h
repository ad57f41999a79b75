// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_STATUS_H_
#define AIT_BASE_STATUS_H_

// Errors as values: `Status`, `StatusOr<T>`, and what it takes to write them in one line.
//
// Everything in ait that can fail because of the world (a peer, a file, memory, an argument)
// returns one of the two. They are Abseil's types, so a program that already uses Abseil needs no
// conversion. Nothing in ait throws, prints or ends the process; a program that prefers exceptions
// includes "ait/base/throw_on_error.h".
//
// The text of an error says what failed, on which object, the value seen, the value allowed and
// what to do; lower case, no full stop:
//
//   Status SetWorldSize(int size) {
//     if (size < 1) return InvalidArgumentError("WORLD_SIZE is ", size, "; set it to 1 or more");
//     AIT_RETURN_IF_ERROR(Reconnect());
//     AIT_ASSIGN_OR_RETURN(table_, ReadTable(path));
//     return OkStatus();
//   }
//
// This is the only public header that includes Abseil.

#include <charconv>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ait::inline v0 {

using Status = ::absl::Status;
using StatusCode = ::absl::StatusCode;
template <typename T>
using StatusOr = ::absl::StatusOr<T>;

inline Status OkStatus() { return Status(); }

namespace internal {

/// One piece of a message: text or a number. Made on the fly by the factories below and by
/// `StrCat`.
class Piece {
 public:
  Piece(const char* text) : text_(text) {}                  // NOLINT: implicit by design
  Piece(std::string_view text) : text_(text) {}             // NOLINT
  Piece(const std::string& text) : text_(text) {}           // NOLINT
  Piece(bool value) : text_(value ? "true" : "false") {}    // NOLINT
  Piece(char value) : digits_{value}, text_(digits_, 1) {}  // NOLINT
  template <typename T>
    requires(std::integral<T> || std::floating_point<T>)
  Piece(T value)  // NOLINT
      : text_(digits_, std::to_chars(digits_, digits_ + sizeof(digits_), value).ptr) {}
  template <typename T>
    requires requires(const T& t) {
      { t.value() } -> std::convertible_to<std::int64_t>;
    }
  Piece(const T& strong)
      : Piece(static_cast<std::int64_t>(strong.value())) {}  // NOLINT: Rank, Bytes, …
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  std::string_view text() const { return text_; }

 private:
  char digits_[40] = {};
  std::string_view text_;
};

std::string Concatenate(std::initializer_list<std::string_view> pieces);
Status MakeStatus(StatusCode code, std::initializer_list<std::string_view> pieces);

}  // namespace internal

/// Joins text and numbers into one string.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  return internal::Concatenate({internal::Piece(parts).text()...});
}

/// The message of `status` as a std::string.
std::string Message(const Status& status);

/// Returns `status` with `context` and ": " put before its message; ok stays ok. Payloads are kept.
/// Use it where a callee cannot know the object: `return Annotate(status, StrCat("shard ", path));`
Status Annotate(const Status& status, std::string_view context);

/// The name of a code as Abseil prints it, such as "UNAVAILABLE".
std::string CodeName(StatusCode code);

/// Status with the code of the name and the text of the parts joined.
/// Which code when: InvalidArgument, the caller is wrong; FailedPrecondition, the caller is early
/// or late; NotFound, OutOfRange; DataLoss, bytes are damaged; ResourceExhausted, memory, disk or a
/// limit is full; Unavailable, a peer is gone; DeadlineExceeded; Aborted, stopped because another
/// part failed; Cancelled, stopped by the caller; Unimplemented, refused on purpose; Internal, a
/// defect of ait.
#define AIT_INTERNAL_STATUS_FACTORY(Code)                                                 \
  template <typename... Parts>                                                            \
  [[nodiscard]] Status Code##Error(const Parts&... parts) {                               \
    return internal::MakeStatus(StatusCode::k##Code, {internal::Piece(parts).text()...}); \
  }
AIT_INTERNAL_STATUS_FACTORY(Aborted)
AIT_INTERNAL_STATUS_FACTORY(AlreadyExists)
AIT_INTERNAL_STATUS_FACTORY(Cancelled)
AIT_INTERNAL_STATUS_FACTORY(DataLoss)
AIT_INTERNAL_STATUS_FACTORY(DeadlineExceeded)
AIT_INTERNAL_STATUS_FACTORY(FailedPrecondition)
AIT_INTERNAL_STATUS_FACTORY(Internal)
AIT_INTERNAL_STATUS_FACTORY(InvalidArgument)
AIT_INTERNAL_STATUS_FACTORY(NotFound)
AIT_INTERNAL_STATUS_FACTORY(OutOfRange)
AIT_INTERNAL_STATUS_FACTORY(PermissionDenied)
AIT_INTERNAL_STATUS_FACTORY(ResourceExhausted)
AIT_INTERNAL_STATUS_FACTORY(Unavailable)
AIT_INTERNAL_STATUS_FACTORY(Unimplemented)
#undef AIT_INTERNAL_STATUS_FACTORY

/// Status for a failed system call: the code that fits `error_number`, and "<what>: <errno text>".
/// ENOSPC, EDQUOT, ENOMEM and EMFILE give ResourceExhausted; ENOENT gives NotFound; and so on.
template <typename... Parts>
[[nodiscard]] Status ErrnoError(int error_number, const Parts&... what);

namespace internal {
Status MakeErrnoStatus(int error_number, std::initializer_list<std::string_view> what);
}  // namespace internal

template <typename... Parts>
Status ErrnoError(int error_number, const Parts&... what) {
  return internal::MakeErrnoStatus(error_number, {internal::Piece(what).text()...});
}

}  // namespace ait::inline v0

#define AIT_INTERNAL_CONCAT_(a, b) a##b
#define AIT_INTERNAL_CONCAT(a, b) AIT_INTERNAL_CONCAT_(a, b)

/// Returns from the enclosing function if the expression is not ok. Works in functions that return
/// Status or StatusOr.
#define AIT_RETURN_IF_ERROR(expression)                                               \
  do {                                                                                \
    if (::ait::Status ait_status = (expression); !ait_status.ok()) return ait_status; \
  } while (false)

/// Evaluates an expression of type StatusOr<T>; assigns its value to `target` or returns its error.
/// `target` may be a declaration: AIT_ASSIGN_OR_RETURN(auto file, Open(path));
#define AIT_ASSIGN_OR_RETURN(target, expression) \
  AIT_INTERNAL_ASSIGN_OR_RETURN(AIT_INTERNAL_CONCAT(ait_status_or_, __LINE__), target, expression)
#define AIT_INTERNAL_ASSIGN_OR_RETURN(result, target, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  target = *std::move(result)

#endif  // AIT_BASE_STATUS_H_
