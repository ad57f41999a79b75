// SPDX-License-Identifier: Apache-2.0
// `ait bench io` from outside: rows, JSON, what it leaves behind and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

Process Bench(std::vector<std::string> options) {
  options.insert(options.begin(), {"bench", "io"});
  return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(options)});
}

TEST(AitBenchIo, MeasuresEveryEngineInADirectoryAndLeavesNothing) {
  const TempDir directory;
  const TempDir other;
  const std::string json_path = other / "io.json";
  Process bench = Bench({directory.path(), "--size", "6M", "--files", "20", "--block", "64K,1M",
                         "--random", "2K", "--seconds", "0.2", "--json", json_path});
  bench.ExpectExit(0, "# pattern");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  std::ifstream file(json_path);
  const nlohmann::json json = nlohmann::json::parse(file);
  // Of each cache: 2 blocks of a plain row and 4 engines at 2 depths; 4 engines at 2 depths; files.
  EXPECT_EQ(json["rows"].size(), 2u * (2 * (1 + 4 * 2) + 4 * 2 + 1));
  std::set<std::string> engines;
  for (const auto& row : json["rows"]) {
    engines.insert(row["engine"]);
    EXPECT_GT(row["bytes"], 0) << row;
    EXPECT_GT(row["bytes_per_s"], 0) << row;
    if (row["pattern"] == "sequential" && row["engine"] != "plain") {
      EXPECT_GT(row["ratio_to_plain"], 0) << row;
    }
    if (row["pattern"] == "files") {
      EXPECT_EQ(row["block_bytes"], 4096) << row;
    }
  }
  EXPECT_EQ(engines, (std::set<std::string>{"automatic", "io_uring", "mapped", "network", "plain",
                                            "pread"}));
  EXPECT_THAT(json["about"][0].get<std::string>(), HasSubstr("streams by"));
}

TEST(AitBenchIo, OnlyReadsAFile) {
  const TempDir directory;
  const std::string path = directory / "file";
  std::ofstream(path) << std::string(3'000'000, 'x');
  const auto written = std::filesystem::last_write_time(path);
  Process bench = Bench({path, "--cache", "warm", "--engine", "pread", "--block", "64K", "--depth",
                         "0,2", "--random", "4K", "--seconds", "0.1"});
  bench.ExpectExit(0, "sequential");
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
  EXPECT_EQ(std::filesystem::file_size(path), 3'000'000u);
}

TEST(AitBenchIo, RefusesWhatMakesNoSense) {
  Bench({}).ExpectExit(2, "PATH");
  Bench({"/tmp", "--engine", "fast"}).ExpectExit(2, "io_uring");
  Bench({"/tmp", "--cache", "hot"}).ExpectExit(2, "--cache");
  Bench({"/tmp", "--drop", "disk"}).ExpectExit(2, "--drop");
  Bench({"/tmp", "--block", "0"}).ExpectExit(2, "--block");
  Bench({"/nowhere/at/all"}).ExpectExit(1, "/nowhere/at/all");
  Bench({"ftp://host/file"}).ExpectExit(1, "ftp");
}

}  // namespace
}  // namespace ait::testing
