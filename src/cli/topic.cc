// SPDX-License-Identifier: Apache-2.0
#include "cli/topic.h"

#include <cstdio>
#include <string_view>
#include <vector>

#include "cli/program.h"

namespace ait::cli {

int RunTopic(const Topic& topic, cxxopts::Options& options, int argc, char** argv,
             const std::function<int(const cxxopts::ParseResult&)>& run) {
  std::vector<char*> words(argv, argv + argc);  // without the name, which comes first
  const bool is_named = argc > 1 && std::string_view(argv[1]) == topic.name;
  if (is_named) words.erase(words.begin() + 1);
  try {
    const cxxopts::ParseResult parsed = options.parse(static_cast<int>(words.size()), words.data());
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), topic.examples);
      return kSuccess;
    }
    if (!is_named) {
      return FailUsage(topic.subcommand,
                       topic.ask + ": ait " + topic.subcommand + " " + topic.name + topic.others);
    }
    if (!parsed.unmatched().empty()) {
      return FailUsage(topic.subcommand, "takes no argument " + parsed.unmatched().front());
    }
    return run(parsed);
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage(topic.subcommand, error);
  }
}

}  // namespace ait::cli
