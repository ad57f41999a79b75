// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_URI_INTERNAL_H_
#define AIT_DATA_STORAGE_URI_INTERNAL_H_

// URLs: their schemes, and characters as %XX.

#include <string>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

/// The scheme of a URL in lower case, such as "s3"; empty if it is a plain path.
std::string SchemeOf(std::string_view url);

/// All but letters, digits, "-._~" and the characters of `keep` as %XX (RFC 3986).
std::string PercentEncode(std::string_view text, std::string_view keep = {});
/// Undoes it; '+' becomes a space if `plus` says so. **Errors.** InvalidArgument: "%" without two
/// hexadecimal digits.
enum class Plus { kIsPlus, kIsSpace };
StatusOr<std::string> PercentDecode(std::string_view text, Plus plus = Plus::kIsPlus);

/// A URL for messages: what may hold secrets (user, query, fragment) is taken out.
std::string WithoutSecrets(std::string_view url);

/// A URL of http or https as it is sent: no fragment, and bytes that no URL may hold as %XX.
/// **Errors.** InvalidArgument: another scheme, no host, or a user's name or password in it.
StatusOr<std::string> CheckedHttpUrl(std::string_view url);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_URI_INTERNAL_H_
