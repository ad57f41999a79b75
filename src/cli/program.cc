// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <cctype>
#include <cstdio>
#include <string>

namespace ait::cli {

int FailUsage(std::string_view subcommand, std::string_view what) {
  const std::string name(subcommand);
  std::fprintf(stderr, "ait %s: %s\nTry: ait %s --help\n", name.c_str(), std::string(what).c_str(),
               name.c_str());
  return kWrongUsage;
}

int FailUsage(std::string_view subcommand, const std::exception& error) {
  std::string what;
  for (std::string_view rest = error.what(); !rest.empty();) {
    const bool is_quote = rest.starts_with("\u2018") || rest.starts_with("\u2019");
    what += is_quote ? '\'' : rest.front();
    rest.remove_prefix(is_quote ? std::string_view("\u2018").size() : 1);
  }
  return FailUsage(subcommand, what);
}

int Fail(std::string_view subcommand, const Status& status, int code) {
  std::fprintf(stderr, "ait %s: %s\n", std::string(subcommand).c_str(), Message(status).c_str());
  return code;
}

std::string Counted(std::int64_t count, std::string_view noun) {
  return StrCat(count, " ", noun, count == 1 ? "" : "s");
}

StatusOr<std::int64_t> ParseByteSize(std::string_view option, std::string text) {
  const std::string whole = text;
  int shift = 0;
  for (const std::string_view unit : {"iB", "B", "b"}) {
    if (text.ends_with(unit)) {
      text.resize(text.size() - unit.size());
      break;
    }
  }
  if (!text.empty()) {
    const int letter = std::toupper(static_cast<unsigned char>(text.back()));
    shift = letter == 'K' ? 10 : letter == 'M' ? 20 : letter == 'G' ? 30 : 0;
    if (shift != 0) text.pop_back();
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto number = ParseNumber<std::int64_t>(option, text, 1, kMost >> shift, "a size");
  if (number.ok()) return *number << shift;
  return InvalidArgumentError("option ", option, " cannot be '", whole,
                              "': give bytes, such as 4096, 64K or 25M, at most 1024G");
}

}  // namespace ait::cli
