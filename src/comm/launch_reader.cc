// SPDX-License-Identifier: Apache-2.0
#include "comm/launch_reader.h"

#include <charconv>

namespace ait::inline v0::internal {

std::optional<int> LaunchReader::Number(const Variable& variable, int least, int most) {
  if (!variable) return std::nullopt;
  int number = 0;
  const std::string& text = variable.text();
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) {
    Problem(variable.name(), " is not a whole number");
  } else if (number < least || number > most) {
    if (most == kMaxInt) {
      Problem(variable.name(), " is below ", least);
    } else {
      Problem(variable.name(), " is not in ", least, " to ", most);
    }
  } else {
    return number;
  }
  return std::nullopt;
}

Status LaunchReader::Result(const Env& env) const {
  if (problems_.empty()) return OkStatus();
  std::string text;
  for (const std::string& problem : problems_) text += StrCat(text.empty() ? "" : "; ", problem);
  std::string seen;
  env.ForEach([&](const char* name, const Env::Value& value) {
    if (value) seen += StrCat(seen.empty() ? "" : " ", name, "=", *value);
  });
  return InvalidArgumentError("the environment does not describe a run: ", text, ". Seen: ", seen);
}

std::string Show(const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable& variable : variables) {
    if (!variable) continue;
    text += StrCat(text.empty() ? "" : ", ", variable.name(), "=", variable.text());
  }
  return text;
}

}  // namespace ait::inline v0::internal
