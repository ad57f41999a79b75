// SPDX-License-Identifier: Apache-2.0
// examples/09-images from outside: it packs images into shards that others read, learns from them
// on two ranks, gives the same result whatever the threads, and explains what is wrong.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/observe/metrics_log.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::TempDir;
using ::testing::HasSubstr;

Process Start(const std::string& program, std::vector<std::string> args) {
  return Process::Spawn(
      {.program = program, .args = std::move(args), .timeout = std::chrono::minutes(4)});
}

/// The line of the output that has the result.
std::string ResultOf(const std::string& output) {
  const std::size_t begin = output.find("test accuracy ");
  return begin == std::string::npos ? "" : output.substr(begin, output.find('\n', begin) - begin);
}

class ImagesExample : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    packed_.emplace();
    Start(AIT_IMAGES, {"pack", packed_->path()}).ExpectExit(0, "train: 60000 images");
  }
  static void TearDownTestSuite() { packed_.reset(); }

  static Process TrainOnTwoRanks(std::vector<std::string> options) {
    std::vector<std::string> args = {"run", "-n", "2", "--", AIT_IMAGES, "train", packed_->path()};
    args.insert(args.end(), options.begin(), options.end());
    return Start(AIT_PROGRAM, std::move(args));
  }

  static std::optional<TempDir> packed_;
  TempDir folder_;
};

std::optional<TempDir> ImagesExample::packed_;

TEST_F(ImagesExample, PacksShardsThatAreWhole) {
  Start(AIT_PROGRAM, {"inspect", *packed_ / "test"}).ExpectExit(0, "10000 in 2 blocks");
  Process train = Start(AIT_PROGRAM, {"inspect", *packed_ / "train/100.tar"});
  train.ExpectExit(0, "samples    5000");
  EXPECT_THAT(train.output(), HasSubstr("jpg"));
  EXPECT_THAT(train.output(), HasSubstr("cls"));
  for (int shard = 100; shard < 112; ++shard) {
    EXPECT_TRUE(std::filesystem::exists(*packed_ / ("train/" + std::to_string(shard) + ".tar")));
  }
}

TEST_F(ImagesExample, LearnsOnTwoRanks) {
  Process run = TrainOnTwoRanks({"--steps", "60", "--out", folder_ / "run"});
  run.ExpectExit(0, "2 ranks: test accuracy ");
  EXPECT_GE(std::atof(ResultOf(run.output()).c_str() + std::string_view("test accuracy ").size()),
            60)
      << run.output();
  ASSERT_OK_AND_ASSIGN(const auto metrics, ReadMetricsLog(folder_ / "run/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 60u);
  ASSERT_TRUE(metrics.front().loss && metrics.back().loss);
  EXPECT_LT(*metrics.back().loss, 0.7 * *metrics.front().loss);
  EXPECT_TRUE(metrics.back().data_wait.has_value());
}

TEST_F(ImagesExample, IsTheSameWithAnyNumberOfThreads) {
  const auto train = [](const std::string& threads) {
    return Start(AIT_IMAGES, {"train", packed_->path(), "--steps", "12", "--threads", threads});
  };
  Process none = train("0");
  Process three = train("3");
  none.ExpectExit(0, "1 ranks: test accuracy ");
  three.ExpectExit(0, "1 ranks: test accuracy ");
  EXPECT_EQ(ResultOf(none.output()), ResultOf(three.output()));
}

TEST_F(ImagesExample, SaysWhatTheDataCosts) {
  Process run = TrainOnTwoRanks({"--steps", "130", "--io-experiment", "1"});
  run.ExpectExit(0, "data: a step takes");
}

TEST_F(ImagesExample, ExplainsWhatIsWrong) {
  Start(AIT_IMAGES, {"train"}).ExpectExit(1, "usage: images pack OUT");
  Start(AIT_IMAGES, {"train", "x", "--steps", "ten"}).ExpectExit(1, "--steps cannot be 'ten'");
  Start(AIT_IMAGES, {"train", "x", "--step", "10"}).ExpectExit(1, "no option --step");
  Start(AIT_IMAGES, {"train", "x", "--epochs", "0"}).ExpectExit(1, "--epochs");
  Start(AIT_IMAGES, {"train", folder_ / "nowhere"}).ExpectExit(1, folder_ / "nowhere");
  Start(AIT_IMAGES, {"pack", folder_ / "out", folder_ / "nowhere"})
      .ExpectExit(1, folder_ / "nowhere");
}

TEST_F(ImagesExample, NamesTheImageThatIsNone) {
  std::filesystem::create_directories(folder_ / "data/train");
  std::filesystem::copy(*packed_ / "train/103.tar", folder_ / "data/train/103.tar");
  std::fstream tar(folder_ / "data/train/103.tar", std::ios::in | std::ios::out | std::ios::binary);
  tar.seekp(512);  // the first bytes of the first file
  tar.write("no JPEG", 7);
  tar.close();
  Start(AIT_IMAGES, {"train", folder_ / "data", "--epochs", "1"}).ExpectExit(1, "103.tar");
}

}  // namespace
}  // namespace ait
