// SPDX-License-Identifier: Apache-2.0
// `ait bench comm` and `ait bench memory` from outside: columns, results, what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "ait/topology/budget.h"
#include "ait/topology/machine.h"
#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Process Bench(std::vector<std::string> options,
              std::map<std::string, std::string> environment = {}) {
  options.insert(options.begin(), {"bench", "comm", "--iters", "3", "--warmup", "1"});
  return Process::Spawn(
      {.program = AIT_PROGRAM, .args = std::move(options), .environment = std::move(environment)});
}

nlohmann::json Read(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(AitBench, StartsItsRanksAndChecksEveryCollectiveOfEveryType) {
  const TempDir directory;
  const std::string path = directory / "bench.json";
  Process bench = Bench({"-n", "3", "--dtype", "all", "--redop", "all", "-b", "1K", "-e", "100K",
                         "-f", "10", "--json", path});
  bench.ExpectExit(0, "# Out of bounds values : 0 OK\n");
  EXPECT_THAT(bench.standard_output(), HasSubstr("# transport shared-memory memory arena"));
  EXPECT_THAT(bench.standard_output(), HasSubstr("# Avg bus bandwidth    : "));
  const nlohmann::json json = Read(path);
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["wrong"], 0);
  // Of each size: 12 types, 5 reductions (the average for 4 types), 2 of them reduce, 6 do not.
  EXPECT_EQ(json["rows"].size(), 3 * (2 * (12 * 4 + 4) + 6 * 12) + 1);
  for (const auto& row : json["rows"]) {
    if (row["collective"] == "barrier") continue;
    for (const char* way : {"out_of_place", "in_place"}) {
      if (row[way].is_null()) continue;
      EXPECT_EQ(row[way]["wrong"], 0) << row;
      EXPECT_GT(row[way]["time_us"], 0) << row;
      EXPECT_LE(row[way]["p50_us"], row[way]["p99_us"]) << row;
      EXPECT_LE(row[way]["p99_us"], row[way]["max_us"]) << row;
    }
  }
}

TEST(AitBench, BusBandwidthIsThatOfNcclTests) {
  const TempDir directory;
  const std::string path = directory / "bench.json";
  Bench({"-n", "4", "-b", "64K", "-e", "64K", "--json", path}).ExpectExit(0);
  const std::map<std::string, double> factors = {
      {"all_reduce", 1.5}, {"reduce_scatter", 0.75}, {"all_gather", 0.75}, {"broadcast", 1},
      {"alltoall", 0.75},  {"gather", 0.75},         {"scatter", 0.75},    {"sendrecv", 1}};
  int seen = 0;
  const nlohmann::json json = Read(path);
  for (const auto& row : json["rows"]) {
    const auto factor = factors.find(row["collective"]);
    if (factor == factors.end()) continue;
    const auto& time = row["in_place"].is_null() ? row["out_of_place"] : row["in_place"];
    EXPECT_NEAR(time["algbw"], 65536 / 1e3 / time["time_us"].get<double>(), 1e-6) << row;
    EXPECT_NEAR(time["busbw"], time["algbw"].get<double>() * factor->second, 1e-6) << row;
    EXPECT_EQ(row["bytes"], 65536);
    const bool has_parts = factor->second == 0.75;
    EXPECT_EQ(row["count"], has_parts ? 4096 : 16384) << row;
    ++seen;
  }
  EXPECT_EQ(seen, 8);
}

TEST(AitBench, AllReduceHasNoCallOutOfPlaceAndAllToAllNoneInPlace) {
  Process bench = Bench({"--op", "all_reduce,alltoall", "-b", "8K", "-e", "8K"});
  bench.ExpectExit(0);
  EXPECT_THAT(bench.standard_output(),
              ::testing::ContainsRegex(
                  "all_reduce +8192 +2048 +float +sum +-1 +N/A +N/A +N/A +N/A +[0-9]"));
  EXPECT_THAT(bench.standard_output(),
              ::testing::ContainsRegex(
                  "alltoall +8192 +1024 +float +none +-1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0 +N/A"));
}

TEST(AitBench, MeasuresThreadsHeapsAndWithoutSignatures) {
  Process threads = Bench({"--transport", "threads", "-n", "2", "-e", "4K"});
  threads.ExpectExit(0, "values : 0 OK");
  EXPECT_THAT(threads.standard_output(), HasSubstr("# transport threads memory heap"));
  Process heap = Bench({"--memory", "heap", "--signatures", "off", "-e", "4K"});
  heap.ExpectExit(0, "values : 0 OK");
  EXPECT_THAT(heap.standard_output(), HasSubstr("memory heap signatures off"));
  Process unchecked = Bench({"--check", "0", "-e", "4K"});
  unchecked.ExpectExit(0);
  EXPECT_THAT(unchecked.standard_output(), Not(HasSubstr("Out of bounds")));
}

TEST(AitBench, UnderALauncherEachProcessIsOneRank) {
  Process run =
      Process::Spawn({.program = AIT_PROGRAM,
                      .args = {"run", "-n", "2", "-q", "--no-prefix", "--", AIT_PROGRAM, "bench",
                               "comm", "--op", "all_gather", "-e", "4K", "-n", "7"}});
  run.ExpectExit(0, "# ranks 2 ");
  EXPECT_THAT(run.standard_output(), HasSubstr("values : 0 OK"));
}

TEST(AitBench, OneRankLeavesOutWhatNeedsTwo) {
  Process bench = Bench({"-n", "1", "-e", "4K"});
  bench.ExpectExit(0, "# Out of bounds values : 0 OK\n");
  EXPECT_THAT(bench.standard_output(), Not(HasSubstr("sendrecv")));
  Bench({"-n", "1", "--op", "sendrecv"}).ExpectExit(1, "sendrecv needs two ranks or more");
}

TEST(AitBench, RefusesWhatItDoesNotKnow) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--op", "all_reduce,allreduce"}, "--op does not know 'allreduce'"},
      {{"--dtype", "fp32"}, "--dtype does not know 'fp32'"},
      {{"--redop", "mean"}, "--redop does not know 'mean'"},
      {{"--transport", "pigeon"}, "--transport cannot be 'pigeon': give threads or shm"},
      {{"-b", "4X"}, "--min-size cannot be '4X'"},
      {{"-b", "8K", "-e", "4K"}, "--min-size 8192 is more than --max-size 4096"},
      {{"-b", "1", "-e", "3"}, "--max-size 3 is less than one element"},
      {{"-f", "1"}, "--factor cannot be '1'"},
      {{"--iters", "0"}, "--iters cannot be '0'"},
      {{"-n", "0"}, "-n cannot be '0'"},
      {{"--signatures", "off", "--transport", "threads"}, "threads always compare"},
      {{"extra"}, "takes no argument extra"},
  };
  for (const auto& [options, message] : cases) Bench(options).ExpectExit(2, message);
  Process::Spawn({.program = AIT_PROGRAM, .args = {"bench"}})
      .ExpectExit(2, "say what to measure: ait bench comm");
  Bench({"--root", "2", "-n", "2"}).ExpectExit(1, "--root 2 is not one of the 2 ranks");
}

Process BenchMemory(std::vector<std::string> options,
                    std::map<std::string, std::string> environment = {}) {
  options.insert(options.begin(), {"bench", "memory"});
  return Process::Spawn(
      {.program = AIT_PROGRAM, .args = std::move(options), .environment = std::move(environment)});
}

TEST(AitBenchMemory, MeasuresThreadsAndNodes) {
  const TempDir directory;
  const std::string path = directory / "memory.json";
  Process bench =
      BenchMemory({"--threads", "1,3,all", "--size", "1M", "--reps", "2", "--json", path});
  bench.ExpectExit(0, "# arrays of 1 MiB, ");
  EXPECT_THAT(bench.standard_output(), HasSubstr("\n# threads  read "));
  EXPECT_THAT(bench.standard_output(), HasSubstr("\n# CPUs of "));
  const nlohmann::json json = Read(path);
  EXPECT_EQ(json["array_bytes"], 1 << 20);
  EXPECT_EQ(json["repetitions"], 2);
  ASSERT_GE(json["threads"].size(), 2u);
  EXPECT_EQ(json["threads"][0]["threads"], 1);
  EXPECT_EQ(json["threads"][1]["threads"], 3);
  for (const auto& row : json["threads"]) {
    for (const char* kernel : {"read", "copy", "triad"}) {
      EXPECT_GT(row[kernel]["median_bytes_per_s"], 0) << row;
      EXPECT_GE(row[kernel]["best_bytes_per_s"], row[kernel]["median_bytes_per_s"]) << row;
    }
  }
  // A cell for each pair of a node with CPUs and a node with memory that this process may use.
  const Machine machine = ReadMachine().value();
  const Budget budget = ReadBudget().value();
  std::size_t with_cpus = 0, with_memory = 0;
  for (const NumaNode& node : machine.nodes) {
    with_cpus += (node.cpus & budget.usable_cpus()).empty() ? 0 : 1;
    with_memory += node.memory > Bytes(0) && budget.memory_nodes->value.contains(node.id) ? 1 : 0;
  }
  ASSERT_EQ(json["matrix"].size(), with_cpus * with_memory);
  for (const auto& cell : json["matrix"]) {
    EXPECT_GT(cell["read_bytes_per_s"], 0) << cell;
    EXPECT_GT(cell["latency_ns"], 0) << cell;
    EXPECT_EQ(cell["placement"] == "verified", cell["reason"] == "") << cell;
  }
}

TEST(AitBenchMemory, CapsTheInstructionsAndLeavesNodesOut) {
  Process bench =
      BenchMemory({"--size", "1M", "--reps", "1", "--matrix", "off"}, {{"AIT_SIMD", "baseline"}});
  bench.ExpectExit(0, "# arrays of 1 MiB, baseline; ");
  EXPECT_THAT(bench.standard_output(), Not(HasSubstr("between nodes")));
}

TEST(AitBenchMemory, RefusesWhatItDoesNotKnow) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--threads", "0"}, "option --threads cannot be '0'"},
      {{"--threads", "1,many"}, "numbers from 1 to 4096 and \"all\""},
      {{"--size", "4X"}, "option --size cannot be '4X'"},
      {{"--size", "1K"}, "option --size cannot be '1K': "},
      {{"--reps", "0"}, "option --reps cannot be '0'"},
      {{"--matrix", "yes"}, "option --matrix cannot be 'yes': give on or off"},
      {{"extra"}, "takes no argument extra"},
  };
  for (const auto& [options, message] : cases) BenchMemory(options).ExpectExit(2, message);
  BenchMemory({}, {{"AIT_SIMD", "mmx"}}).ExpectExit(2, "AIT_SIMD is \"mmx\"");
  BenchMemory({"--size", "1M", "--reps", "1", "--matrix", "off", "--json", "/proc/no/such"})
      .ExpectExit(1, "cannot write /proc/no/such");
  Process::Spawn({.program = AIT_PROGRAM, .args = {"bench"}})
      .ExpectExit(2, "ait bench comm or ait bench memory");
}

TEST(AitBench, SaysWhereTheResultCannotBeWritten) {
  Bench({"-e", "4K", "--op", "barrier", "--json", "/proc/no/such"})
      .ExpectExit(1, "cannot write /proc/no/such");
}

}  // namespace
}  // namespace ait::testing
