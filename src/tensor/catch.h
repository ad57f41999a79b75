// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_CATCH_H_
#define AIT_TENSOR_CATCH_H_

// The one seam at which exceptions become Status: every call of libtorch, and of functions that the
// user hands in, goes through `CatchAsStatus`.
//
//   AIT_ASSIGN_OR_RETURN(at::Tensor loss, internal::CatchAsStatus([&] { return forward(batch); }));
//   AIT_RETURN_IF_ERROR(internal::CatchAsStatus([&] { loss.backward(); }));
//
// This header includes no libtorch.

#include <type_traits>
#include <utility>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// The exception that is being handled, as Status: a StatusException is the status it was made of;
/// out of memory is ResourceExhausted; libtorch's
/// value, index and type errors are InvalidArgument; not implemented is Unimplemented; errors of
/// its stores and sockets are Unavailable; anything else, also of user code, is Unknown. The text
/// is what() without the stack trace. Call it only inside a catch block.
Status StatusFromCurrentException() noexcept;

template <typename T>
struct CaughtAs {
  using Type = StatusOr<T>;
};
template <>
struct CaughtAs<void> {
  using Type = Status;
};
template <>
struct CaughtAs<Status> {
  using Type = Status;
};
template <typename T>
struct CaughtAs<StatusOr<T>> {
  using Type = StatusOr<T>;
};

/// Calls `function` and turns whatever it throws into a Status. Returns Status for a function that
/// returns void or Status, StatusOr<T> for one that returns T or StatusOr<T>.
template <typename Function>
typename CaughtAs<std::decay_t<std::invoke_result_t<Function&>>>::Type CatchAsStatus(
    Function&& function) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Function&>>) {
      function();
      return OkStatus();
    } else {
      return function();
    }
  } catch (...) {
    return StatusFromCurrentException();
  }
}

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_CATCH_H_
