// SPDX-License-Identifier: Apache-2.0
#include "comm/slurm_lists.h"

#include <charconv>
#include <optional>
#include <utility>

namespace ait::inline v0::internal {
namespace {

/// Digits at the front of `text`, taken off; nullopt if there are none or too many.
std::optional<int> TakeNumber(std::string_view& text) {
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

bool Take(std::string_view& text, std::string_view word) {
  if (text.substr(0, word.size()) != word) return false;
  text.remove_prefix(word.size());
  return true;
}

std::string Padded(int number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

/// "0-1,07" into numbers as text, with the zeros in front of the first of a range.
bool AddRanges(std::string_view text, std::vector<std::string>& out) {
  while (true) {
    std::string_view before = text;
    if (text.empty()) return false;
    const std::optional<int> first = TakeNumber(text);
    if (!first) return false;
    const std::size_t width = before.size() - text.size();
    int last = *first;
    if (Take(text, "-")) {
      const std::optional<int> end = text.empty() ? std::nullopt : TakeNumber(text);
      if (!end || *end < *first) return false;
      last = *end;
    }
    if (static_cast<std::size_t>(last - *first) >= kMaxSlurmEntries - out.size()) return false;
    for (int i = *first; i <= last; ++i) out.push_back(Padded(i, width));
    if (text.empty()) return true;
    if (!Take(text, ",")) return false;
  }
}

/// The comma outside brackets, or the end.
std::size_t EndOfName(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (text[i] == ',' && depth == 0) return i;
  }
  return text.size();
}

bool AddNames(std::string_view name, std::vector<std::string>& out) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const std::size_t open = name.find_first_of("[]");
    for (std::string& known : names) known += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = name.find_first_of("[]", open + 1);
    if (name[open] != '[' || close == std::string_view::npos || name[close] != ']') return false;
    std::vector<std::string> numbers;
    if (!AddRanges(name.substr(open + 1, close - open - 1), numbers)) return false;
    if (numbers.size() > kMaxSlurmEntries / names.size()) return false;
    std::vector<std::string> longer;
    for (const std::string& known : names) {
      for (const std::string& number : numbers) longer.push_back(known + number);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  if (names.front().empty() || names.size() > kMaxSlurmEntries - out.size()) return false;
  for (std::string& known : names) out.push_back(std::move(known));
  return true;
}

}  // namespace

StatusOr<std::vector<int>> ParseTasksPerNode(std::string_view text) {
  const auto wrong = [whole = text] {
    return InvalidArgumentError("\"", whole, "\" is no list of tasks such as \"2(x3),1\"");
  };
  std::vector<int> tasks;
  while (true) {
    const std::optional<int> count = text.empty() ? std::nullopt : TakeNumber(text);
    if (!count || *count < 1) return wrong();
    int times = 1;
    if (Take(text, "(x")) {
      const std::optional<int> number = text.empty() ? std::nullopt : TakeNumber(text);
      if (!number || *number < 1 || !Take(text, ")")) return wrong();
      times = *number;
    }
    if (static_cast<std::size_t>(times) > kMaxSlurmEntries - tasks.size()) return wrong();
    tasks.insert(tasks.end(), static_cast<std::size_t>(times), *count);
    if (text.empty()) return tasks;
    if (!Take(text, ",")) return wrong();
  }
}

StatusOr<std::vector<std::string>> ParseNodeList(std::string_view text) {
  std::vector<std::string> nodes;
  std::string_view rest = text;
  while (true) {
    const std::size_t end = EndOfName(rest);
    if (!AddNames(rest.substr(0, end), nodes)) {
      return InvalidArgumentError("\"", text, "\" is no list of nodes such as \"n[0-3,7],m2\"");
    }
    if (end == rest.size()) return nodes;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace ait::inline v0::internal
