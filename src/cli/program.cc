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

int Fail(std::string_view subcommand, const Status& status, int code) {
  std::fprintf(stderr, "ait %s: %s\n", std::string(subcommand).c_str(), Message(status).c_str());
  return code;
}

}  // namespace ait::cli
