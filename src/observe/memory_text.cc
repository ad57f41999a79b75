// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "ait/base/status.h"
#include "observe/memory_text_internal.h"

namespace ait::inline v0::internal {

std::optional<Bytes> KibibytesOf(std::string_view line, std::string_view key) {
  if (!line.starts_with(key)) return std::nullopt;
  line.remove_prefix(key.size());
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  line.remove_prefix(begin);
  std::int64_t kibibytes = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), kibibytes);
  if (error != std::errc() || std::string_view(end, line.data() + line.size()) != " kB")
    return std::nullopt;
  return KiB(kibibytes);
}

std::string BytesText(double bytes) {
  struct Unit {
    const char* name;
    double size;
  };
  constexpr std::array<Unit, 3> kUnits = {{{"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}}};
  std::array<char, 64> text{};
  for (const Unit& unit : kUnits) {
    if (std::abs(bytes) < unit.size) continue;
    std::snprintf(text.data(), text.size(), "%.1f %s", bytes / unit.size, unit.name);
    return text.data();
  }
  std::snprintf(text.data(), text.size(), "%.0f bytes", bytes);
  return text.data();
}

std::string BytesText(Bytes bytes) { return BytesText(static_cast<double>(bytes.value())); }

std::string BytesText(const std::optional<Bytes>& bytes) {
  return bytes ? BytesText(*bytes) : std::string("unknown");
}

}  // namespace ait::inline v0::internal
