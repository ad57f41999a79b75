// SPDX-License-Identifier: Apache-2.0
// The `ait` program: one subcommand per file. It does not load libtorch, so that it starts in
// milliseconds.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/version.h"
#include "cli/bench.h"
#include "cli/doctor.h"
#include "cli/hang.h"
#include "cli/inspect.h"
#include "cli/pack.h"
#include "cli/plan.h"
#include "cli/program.h"
#include "cli/run.h"
#include "cli/shards.h"
#include "cli/stage.h"
#include "cli/topo.h"

namespace ait::cli {
namespace {

struct Subcommand {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
};

constexpr Subcommand kSubcommands[] = {
    {"bench", "measure collectives, or the memory and its nodes", RunBench},
    {"convert", "write samples of one format as shards of another", RunConvert},
    {"doctor", "tell what is wrong with the network of a run before it starts", RunDoctor},
    {"hang", "tell from the ranks' records why a run hung or failed", RunHang},
    {"inspect", "tell what a file or directory of samples holds, and what is damaged", RunInspect},
    {"pack", "turn text into a corpus for training, or many files into few shards", RunPack},
    {"plan", "tell how much memory a training run will take", RunPlan},
    {"run", "start a program as the ranks of one run", RunRun},
    {"stage", "copy a data set to a local disk before a run", RunStage},
    {"topo", "show CPUs, memory and limits, and how ranks would share them", RunTopo},
};

void PrintHelp() {
  std::printf(
      "ait: training with libtorch, without Python\n\nUsage:\n  ait SUBCOMMAND [OPTION...]\n\n");
  for (const Subcommand& subcommand : kSubcommands) {
    std::printf("  %-8s %s\n", subcommand.name, subcommand.summary);
  }
  std::printf(
      "\n  ait SUBCOMMAND --help    options and examples\n"
      "  ait --version            the version\n\n"
      "Example:\n  ait run -n 2 -- ./train --steps 100\n");
}

// Least number of letters to add, take out or change that makes `a` into `b` (Levenshtein 1966).
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

int FailUnknown(std::string_view word) {
  const auto nearest = std::min_element(std::begin(kSubcommands), std::end(kSubcommands),
                                        [word](const auto& a, const auto& b) {
                                          return Distance(word, a.name) < Distance(word, b.name);
                                        });
  const std::string text(word);
  std::fprintf(stderr, "ait: there is no subcommand '%s'", text.c_str());
  if (Distance(word, nearest->name) <= 2)
    std::fprintf(stderr, "; did you mean '%s'?", nearest->name);
  std::fprintf(stderr, "\nTry: ait --help\n");
  return kWrongUsage;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    PrintHelp();
    return kWrongUsage;
  }
  const std::string_view word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") {
    PrintHelp();
    return kSuccess;
  }
  if (word == "--version") {
    std::printf("ait %d.%d.%d\n", AIT_VERSION_MAJOR, AIT_VERSION_MINOR, AIT_VERSION_PATCH);
    return kSuccess;
  }
  for (const Subcommand& subcommand : kSubcommands) {
    if (word == subcommand.name) return subcommand.run(argc - 1, argv + 1);
  }
  return FailUnknown(word);
}

}  // namespace
}  // namespace ait::cli

int main(int argc, char** argv) { return ait::cli::Main(argc, argv); }
