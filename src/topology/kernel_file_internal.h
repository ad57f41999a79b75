// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_KERNEL_FILE_INTERNAL_H_
#define AIT_TOPOLOGY_KERNEL_FILE_INTERNAL_H_

// Small files of /proc and /sys. What is missing or does not parse is nullopt: the kernel's files
// differ from version to version, and a container may hide any of them.

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/topology/id_set.h"

namespace ait::inline v0::internal {

/// The whole text, or nullopt if it cannot be read.
std::optional<std::string> ReadKernelFile(const std::string& path);

/// The file as one integer, one line of text, or a list of ids.
std::optional<std::int64_t> ReadInteger(const std::string& path);
std::optional<std::string> ReadLine(const std::string& path);
std::optional<IdSet> ReadIdSet(const std::string& path);

/// `text` without white space at both ends.
std::string_view Trim(std::string_view text);
std::vector<std::string_view> Split(std::string_view text, char separator);
/// Words between white space.
std::vector<std::string_view> Words(std::string_view text);

/// The whole of `text` as a number.
template <typename T>
  requires(std::integral<T>)
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// What follows `key` on the first line that starts with it, trimmed: Value(meminfo, "MemTotal:").
std::optional<std::string_view> ValueAfter(std::string_view text, std::string_view key);

}  // namespace ait::inline v0::internal

#endif  // AIT_TOPOLOGY_KERNEL_FILE_INTERNAL_H_
