// SPDX-License-Identifier: Apache-2.0
#include "topology/kernel_file_internal.h"

#include <cstdio>

namespace ait::inline v0::internal {

constexpr std::string_view kWhiteSpace = " \t\n\r";

std::optional<std::string> ReadKernelFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::string text;
  char chunk[4096];
  while (const std::size_t count = std::fread(chunk, 1, sizeof(chunk), file)) {
    text.append(chunk, count);
  }
  const bool whole =
      std::ferror(file) == 0;  // the kernel may refuse a read, and so does a directory
  std::fclose(file);
  if (!whole) return std::nullopt;
  return text;
}

std::string_view Trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!(text = Trim(text)).empty()) {
    const std::size_t end = text.find_first_of(kWhiteSpace);
    words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end);
  }
  return words;
}

std::optional<std::string_view> ValueAfter(std::string_view text, std::string_view key) {
  for (std::string_view line : Split(text, '\n')) {
    if (line.starts_with(key)) return Trim(line.substr(key.size()));
  }
  return std::nullopt;
}

std::optional<std::string> ReadLine(const std::string& path) {
  const std::optional<std::string> text = ReadKernelFile(path);
  if (!text) return std::nullopt;
  return std::string(Trim(*text));
}

std::optional<std::int64_t> ReadInteger(const std::string& path) {
  const std::optional<std::string> line = ReadLine(path);
  return line ? ParseNumber<std::int64_t>(*line) : std::nullopt;
}

std::optional<IdSet> ReadIdSet(const std::string& path) {
  const std::optional<std::string> line = ReadLine(path);
  if (!line) return std::nullopt;
  StatusOr<IdSet> set = IdSet::Parse(*line);
  if (!set.ok()) return std::nullopt;
  return *std::move(set);
}

}  // namespace ait::inline v0::internal
