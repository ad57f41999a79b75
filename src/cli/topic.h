// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_TOPIC_H_
#define AIT_CLI_TOPIC_H_

// One kind of a subcommand, named by the word behind it: `ait bench comm`.

#include <cxxopts.hpp>
#include <functional>
#include <string>

namespace ait::cli {

struct Topic {
  std::string subcommand;   // "bench"
  std::string name;         // "comm"
  std::string ask;          // what to say where the name is missing: "say what to measure"
  const char* examples;     // behind the help
  std::string others = "";  // kinds with a code of their own: " or ait bench memory"
};

/// Parses the command line, answers --help and what is wrong, else runs; returns the exit code.
int RunTopic(const Topic& topic, cxxopts::Options& options, int argc, char** argv,
             const std::function<int(const cxxopts::ParseResult&)>& run);

}  // namespace ait::cli

#endif  // AIT_CLI_TOPIC_H_
