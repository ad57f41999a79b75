// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/process_memory.h"

#include <charconv>
#include <fstream>
#include <string_view>

namespace ait::inline v0 {
namespace {

/// Value of a line such as "VmRSS:\t    1234 kB" if it is the line of `key`.
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

}  // namespace

ProcessMemory ReadProcessMemory(const std::string& proc) {
  ProcessMemory memory;
  std::ifstream status(proc + "/self/status");
  for (std::string line; std::getline(status, line);) {
    if (const auto bytes = KibibytesOf(line, "VmRSS:")) memory.resident = bytes;
    if (const auto bytes = KibibytesOf(line, "VmHWM:")) memory.peak_resident = bytes;
  }
  return memory;
}

}  // namespace ait::inline v0
