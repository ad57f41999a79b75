// SPDX-License-Identifier: Apache-2.0
// examples/03-gpt from outside: it trains, stops on Ctrl-C with whole files, generates, and
// explains what is wrong with its input.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/pack.h"
#include "ait/observe/metrics_log.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::TempDir;

class GptExample : public ::testing::Test {
 protected:
  std::string Pack(int sentences) {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < sentences; ++i) text << "A sample is a window of tokens. ";
    text.close();
    EXPECT_OK(PackText({folder_ / "text"}, {.directory = folder_ / "corpus"}));
    return folder_ / "corpus";
  }

  Process Train(const std::string& data, const std::string& minutes) {
    return Process::Spawn({.program = AIT_PROGRAM,
                           .args = {"run", "-n", "2", "--", AIT_GPT, "train", "--data", data,
                                    "--out", folder_ / "run", "--minutes", minutes},
                           .timeout = std::chrono::seconds(120)});
  }

  TempDir folder_;
};

TEST_F(GptExample, StopsOnInterruptWithWholeWeightsAndMetrics) {
  Process run = Train(Pack(5000), "60");
  run.ReadUntil("step 1");
  run.Signal(SIGINT);
  run.ExpectExit(0, "weights and metrics");
  ASSERT_OK_AND_ASSIGN(const auto metrics, ReadMetricsLog(folder_ / "run/metrics.jsonl"));
  EXPECT_FALSE(metrics.empty());

  Process generate =
      Process::Spawn({.program = AIT_GPT,
                      .args = {"generate", "--weights", folder_ / "run/weights.safetensors",
                               "--prompt", "A sample", "--tokens", "20"}});
  generate.ExpectExit(0, "A sample");
}

TEST_F(GptExample, ShowsTheTimeThatIsLeft) {
  Process run = Train(Pack(5000), "60");
  EXPECT_EQ(run.ReadUntil("left ").find("unknown"), std::string::npos);
}

TEST_F(GptExample, SaysWhatTheDataCosts) {
  Process run = Process::Spawn(
      {.program = AIT_PROGRAM,
       .args = {"run", "-n", "2", "--", AIT_GPT, "train", "--data", Pack(5000), "--out",
                folder_ / "run", "--size", "tiny", "--steps", "180", "--io-experiment", "1"},
       .timeout = std::chrono::seconds(120)});
  run.ExpectExit(0, "data: a step takes");
  ASSERT_OK_AND_ASSIGN(const auto metrics, ReadMetricsLog(folder_ / "run/metrics.jsonl"));
  ASSERT_FALSE(metrics.empty());
  EXPECT_TRUE(metrics.back().data_wait.has_value());
}

TEST_F(GptExample, InterruptsWithoutEndLoseNothing) {
  Process run = Process::Spawn(
      {.program = AIT_GPT,
       .args = {"train", "--data", Pack(5000), "--out", folder_ / "run", "--minutes", "60"},
       .timeout = std::chrono::seconds(120)});
  run.ReadUntil("step 1");
  // Also while it saves, and while it ends.
  for (int i = 0; i < 100'000 && run.running(); ++i) {
    kill(run.pid(), SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  run.ExpectExit(0, "weights and metrics");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/weights.safetensors"));
}

TEST_F(GptExample, CompressesItsGradients) {
  Process run =
      Process::Spawn({.program = AIT_PROGRAM,
                      .args = {"run", "-n", "2", "--", AIT_GPT, "train", "--data", Pack(5000),
                               "--out", folder_ / "run", "--minutes", "60", "--compress", "int8"},
                      .timeout = std::chrono::seconds(120)});
  run.ReadUntil("step 1");
  run.Signal(SIGINT);
  run.ExpectExit(0, "weights and metrics");
  ASSERT_OK_AND_ASSIGN(const auto metrics, ReadMetricsLog(folder_ / "run/metrics.jsonl"));
  ASSERT_FALSE(metrics.empty());
  std::map<std::string, std::int64_t> counters(metrics.back().counters.begin(),
                                               metrics.back().counters.end());
  EXPECT_GT(counters["compression_sent_bytes"], 0);
  EXPECT_GT(counters["compression_exact_bytes"], 3 * counters["compression_sent_bytes"]);
  EXPECT_GT(counters["compression_error_ppm"], 0);
  Process::Spawn({.program = AIT_GPT, .args = {"train", "--compress", "zip"}})
      .ExpectExit(1, "there are none, bf16, int8[:BLOCK], topk[:RATIO], powersgd[:RANK]");
}

TEST_F(GptExample, SaysThatTheCorpusIsMissing) {
  Train(folder_ / "nowhere", "1").ExpectExit(1, "nowhere");
}

TEST_F(GptExample, SaysThatTheCorpusIsShorterThanASequence) {
  Train(Pack(2), "1").ExpectExit(1, "corpus");
}

TEST_F(GptExample, SaysThatAShardIsDamaged) {
  const std::string corpus = Pack(5000);
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
    if (entry.path().extension() == ".json") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file.put('!');
  }
  Train(corpus, "1").ExpectExit(1, "checksum");
}

TEST_F(GptExample, SaysThatWeightsOfAnotherSizeDoNotFit) {
  Process run = Train(Pack(5000), "0.02");
  run.ExpectExit(0, "weights and metrics");
  Process::Spawn(
      {.program = AIT_GPT,
       .args = {"generate", "--size", "A", "--weights", folder_ / "run/weights.safetensors"}})
      .ExpectExit(1, "does not fit the model");
}

TEST_F(GptExample, ExplainsItsUsage) {
  Process::Spawn({.program = AIT_GPT, .args = {"trian"}}).ExpectExit(1, "usage");
  Process::Spawn({.program = AIT_GPT, .args = {"train", "--minutes", "soon"}})
      .ExpectExit(1, "--minutes");
  Process::Spawn({.program = AIT_GPT, .args = {"train", "--size", "C"}}).ExpectExit(1, "no size C");
}

}  // namespace
}  // namespace ait
