// SPDX-License-Identifier: Apache-2.0
#include "optim/state_text.h"

#include <algorithm>
#include <charconv>

namespace ait::inline v0::internal {
namespace {

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  constexpr std::string_view kSpace = " \t\r\n";
  for (std::size_t begin = line.find_first_not_of(kSpace); begin != std::string_view::npos;
       begin = line.find_first_not_of(kSpace, begin)) {
    const std::size_t end = std::min(line.find_first_of(kSpace, begin), line.size());
    words.emplace_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

template <typename Number>
bool Parses(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

StatusOr<StateReader> StateReader::Parse(std::string_view kind, int version,
                                         std::string_view line) {
  const std::vector<std::string> words = Words(line);
  int found = 0;
  if (words.size() < 2 || words.size() % 2 != 0 || words[0] != kind || !Parses(words[1], found)) {
    return DataLossError("not a saved state of kind ", kind, ": \"", line.substr(0, 80), "\"");
  }
  if (found != version) {
    return FailedPreconditionError("the saved state of kind ", kind, " has version ", found,
                                   "; this program reads version ", version);
  }
  StateReader reader;
  reader.kind_ = kind;
  for (std::size_t i = 2; i < words.size(); i += 2)
    reader.fields_.emplace_back(words[i], words[i + 1]);
  return reader;
}

template <typename Number>
Status StateReader::ReadNumber(std::string_view name, Number& value) const {
  const auto field = std::ranges::find(fields_, name, &std::pair<std::string, std::string>::first);
  if (field == fields_.end())
    return DataLossError("the saved state of kind ", kind_, " has no ", name);
  if (Parses(field->second, value)) return OkStatus();
  return DataLossError("the saved state of kind ", kind_, " has ", name, " \"", field->second,
                       "\", which is no number of the kind expected");
}

Status StateReader::Read(std::string_view name, double& value) const {
  return ReadNumber(name, value);
}
Status StateReader::Read(std::string_view name, std::int64_t& value) const {
  return ReadNumber(name, value);
}

}  // namespace ait::inline v0::internal
