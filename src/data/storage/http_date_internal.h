// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_HTTP_DATE_INTERNAL_H_
#define AIT_DATA_STORAGE_HTTP_DATE_INTERNAL_H_

// Dates in the headers of HTTP, and what servers say by them.

#include <chrono>
#include <optional>
#include <string_view>

namespace ait::inline v0 {
namespace internal {

/// "Wed, 21 Oct 2015 07:28:00 GMT"; nothing for any other form, the obsolete ones too.
std::optional<std::chrono::sys_seconds> ParseHttpDate(std::string_view text);

/// Whether a Last-Modified tells every change: it lies at least a minute before `date`, the clock of
/// the server (RFC 9110, 8.8.2.2). A younger one may be that of two contents of the same second.
bool IsStrongLastModified(std::string_view last_modified, std::string_view date);

/// The wait that a Retry-After asks for, in seconds or as a date of the server whose clock says
/// `date` (else ours): 0 to 60 s, and 0 for what is neither.
std::chrono::milliseconds ParseRetryAfter(std::string_view text, std::string_view date);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_HTTP_DATE_INTERNAL_H_
