// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_MEMORY_TEXT_INTERNAL_H_
#define AIT_OBSERVE_MEMORY_TEXT_INTERNAL_H_

// Bytes as text: out of the kernel's files, and for people.

#include <optional>
#include <string>
#include <string_view>

#include "ait/base/types.h"

namespace ait::inline v0::internal {

/// Value of a line such as "VmRSS:\t    1234 kB" if it is the line of `key`.
std::optional<Bytes> KibibytesOf(std::string_view line, std::string_view key);

/// "512 bytes", "1.5 KiB", "1.2 MiB", "2.0 GiB"; "-" before a negative number.
std::string BytesText(Bytes bytes);
std::string BytesText(double bytes);
/// The same, or "unknown".
std::string BytesText(const std::optional<Bytes>& bytes);

}  // namespace ait::inline v0::internal

#endif  // AIT_OBSERVE_MEMORY_TEXT_INTERNAL_H_
