// SPDX-License-Identifier: Apache-2.0
#include "launchers/launched_gpt.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "ait/data/pack.h"
#include "ait/observe/metrics_log.h"
#include "support/status_matchers.h"

namespace ait::testing {
namespace {

constexpr int kSteps = 6;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string FindTool(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::string(path == nullptr ? "" : path) + ":/usr/sbin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  }
  return "";
}

LaunchedGpt::LaunchedGpt() {
  std::ofstream text(folder_ / "text");
  for (int i = 0; i < 500; ++i) text << "Sample " << i << " is a window of tokens.\n";
  text.close();
  EXPECT_OK(PackText({folder_ / "text"}, {.directory = folder_ / "corpus"}));
}

std::vector<std::string> LaunchedGpt::Command(const std::string& out) const {
  return {AIT_GPT,       "train", "--data",  folder_ / "corpus",     "--out",  folder_ / out,
          "--size",      "tiny",  "--steps", std::to_string(kSteps), "--bf16", "0",
          "--transport", "gloo"};  // the same bits on one host and on several
}

Process LaunchedGpt::Launch(const std::string& tool, std::vector<std::string> launcher,
                            const std::string& out,
                            std::map<std::string, std::string> environment) {
  const std::vector<std::string> command = Command(out);
  launcher.insert(launcher.end(), command.begin(), command.end());
  environment.insert({{"OMP_NUM_THREADS", "1"}, {"AIT_DESCRIBE", "1"}});
  return Process::Spawn({.program = tool,
                         .args = std::move(launcher),
                         .environment = std::move(environment),
                         .timeout = std::chrono::seconds(180)});
}

void LaunchedGpt::ExpectSameAsOnOneHost(const std::string& out, int ranks) {
  Launch(AIT_PROGRAM, {"run", "-n", std::to_string(ranks), "--threads", "1", "--"}, "one-host")
      .ExpectExit(0, "weights and metrics");
  ASSERT_OK_AND_ASSIGN(const auto expected, ReadMetricsLog(folder_ / "one-host/metrics.jsonl"));
  ASSERT_OK_AND_ASSIGN(const auto metrics, ReadMetricsLog(folder_ / (out + "/metrics.jsonl")));
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(metrics.size(), expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    ASSERT_TRUE(metrics[step].loss && expected[step].loss);
    EXPECT_EQ(*metrics[step].loss, *expected[step].loss) << "step " << step;
  }
  const std::string weights = Contents(folder_ / "one-host/weights.safetensors");
  EXPECT_GT(weights.size(), 1000u);
  EXPECT_TRUE(Contents(folder_ / (out + "/weights.safetensors")) == weights)
      << "the weights differ";
}

}  // namespace ait::testing
