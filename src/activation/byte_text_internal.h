// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_BYTE_TEXT_INTERNAL_H_
#define AIT_ACTIVATION_BYTE_TEXT_INTERNAL_H_

// "12.3 GiB", "4.5 MiB", "678 bytes".

#include <cstdint>
#include <cstdio>
#include <string>

namespace ait::inline v0::internal {

inline std::string ByteText(std::int64_t bytes) {
  char text[40];
  const auto number = static_cast<double>(bytes);
  const double size = number < 0 ? -number : number;
  if (size >= 1 << 30) {
    std::snprintf(text, sizeof(text), "%.2f GiB", number / (1 << 30));
  } else if (size >= 1 << 20) {
    std::snprintf(text, sizeof(text), "%.1f MiB", number / (1 << 20));
  } else if (size >= 1 << 10) {
    std::snprintf(text, sizeof(text), "%.1f KiB", number / (1 << 10));
  } else {
    std::snprintf(text, sizeof(text), "%lld bytes", static_cast<long long>(bytes));
  }
  return text;
}

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_BYTE_TEXT_INTERNAL_H_
