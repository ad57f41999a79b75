// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

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

}  // namespace ait::cli
