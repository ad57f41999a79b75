// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_bench.h"

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/env.h"
#include "cli/memory_bench_data.h"
#include "cli/program.h"
#include "cli/topic.h"

namespace ait::cli {
namespace {

constexpr int kMaxThreads = 4096;

constexpr char kExamples[] = R"(
read: sum of an array; copy: a = b; triad: a = b + 3 c (as STREAM), with stores that go past the caches.
Each thread has a core of its own and touches its part of the arrays first. Between nodes: all cores of
one node read the memory of another, which is read back ("unverified" where a container forbids that), and
one core waits for loads in random order. AIT_SIMD caps the vector instructions.

Examples:
  ait bench memory                        one thread and all cores, and every pair of nodes
  ait bench memory --threads 1,2,4,8 --matrix off
  ait bench memory --size 64M --reps 3 --json memory.json
)";

cxxopts::Options MakeOptions() {
  cxxopts::Options options(
      "ait bench memory",
      "Measures the bandwidth and the latency of memory, also between nodes.\n");
  options.custom_help("[OPTION...]");
  cxxopts::OptionAdder add = options.add_options();
  const auto text = [](const char* fallback) {
    return cxxopts::value<std::string>()->default_value(fallback);
  };
  add("threads", "numbers of threads, and \"all\": one on each core", text("1,all"), "LIST");
  add("size", "of each of three arrays (default: 4 last-level caches, 64M to 512M)",
      cxxopts::value<std::string>(), "SIZE");
  add("reps", "repetitions of each measurement", text("7"), "N");
  add("matrix", "whether to measure between nodes", text("on"), "on|off");
  add("json", "also write the result", cxxopts::value<std::string>(), "FILE");
  add("h,help", "print this help");
  return options;
}

/// "1,2,all", each once.
StatusOr<std::vector<int>> ReadThreads(std::string_view list, int all) {
  std::vector<int> threads;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string word(list.substr(0, comma));
    int number = all;
    if (word != "all") {
      AIT_ASSIGN_OR_RETURN(number,
                           ParseNumber("--threads", word, 1, kMaxThreads,
                                       StrCat("numbers from 1 to ", kMaxThreads, " and \"all\"")));
    }
    if (std::find(threads.begin(), threads.end(), number) == threads.end()) {
      threads.push_back(number);
    }
    if (comma == std::string_view::npos) return threads;
    list.remove_prefix(comma + 1);
  }
}

StatusOr<MemoryBenchOptions> ReadOptions(const cxxopts::ParseResult& parsed, const Machine& machine,
                                         const Budget& budget) {
  const auto text = [&](const char* name) { return parsed[name].as<std::string>(); };
  MemoryBenchOptions options;
  AIT_ASSIGN_OR_RETURN(options.simd, SimdLevelFromEnv(Env::FromProcess()));
  AIT_ASSIGN_OR_RETURN(options.repetitions, ParseNumber("--reps", text("reps"), 1, 1'000'000,
                                                        "a whole number, at least 1"));
  int all = 0;
  const CpuSet usable = budget.usable_cpus() & machine.online;
  for (const CpuSet& core : machine.cores) all += (core & usable).empty() ? 0 : 1;
  AIT_ASSIGN_OR_RETURN(options.threads, ReadThreads(text("threads"), std::max(all, 1)));
  options.array_bytes = ChooseArrayBytes(machine, budget);
  if (parsed.count("size") != 0) {
    AIT_ASSIGN_OR_RETURN(const std::int64_t bytes, ParseByteSize("--size", text("size")));
    options.array_bytes = Bytes(bytes);
  }
  // Each thread of each row, and of the nodes, has a page of its own at least.
  const int most = std::max(all, *std::max_element(options.threads.begin(), options.threads.end()));
  if (options.array_bytes < Bytes(std::int64_t{4096} * most)) {
    return InvalidArgumentError("option --size cannot be '", text("size"), "': ", most,
                                " threads need at least ", 4096 * most, " bytes");
  }
  const std::string matrix = text("matrix");
  if (matrix != "on" && matrix != "off") {
    return InvalidArgumentError("option --matrix cannot be '", matrix, "': give on or off");
  }
  options.matrix = matrix == "on";
  return options;
}

int Run(const cxxopts::ParseResult& parsed) {
  const auto machine = ReadMachine();
  if (!machine.ok()) return Fail("bench", machine.status());
  const auto budget = ReadBudget();
  if (!budget.ok()) return Fail("bench", budget.status());
  const auto options = ReadOptions(parsed, *machine, *budget);
  if (!options.ok()) return FailUsage("bench", Message(options.status()));
  const auto result = MeasureMemory(*machine, *budget, *options, [](const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  });
  if (!result.ok()) return Fail("bench", result.status());
  if (parsed.count("json") == 0) return kSuccess;
  const std::string path = parsed["json"].as<std::string>();
  std::ofstream file(path);
  file << MemoryBenchJson(*options, *result);
  if (!file.flush()) return Fail("bench", UnavailableError("cannot write ", path));
  return kSuccess;
}

}  // namespace

int RunMemoryBench(int argc, char** argv) {
  cxxopts::Options options = MakeOptions();
  return RunTopic({.subcommand = "bench",
                   .name = "memory",
                   .ask = "say what to measure",
                   .examples = kExamples},
                  options, argc, argv, Run);
}

}  // namespace ait::cli
