// SPDX-License-Identifier: Apache-2.0
// examples/10-stream from outside, against a server that speaks the protocol of S3 and checks
// signatures: what a killed run that goes on delivers and learns, what is downloaded, and what it
// says when something is wrong.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ait/observe/metrics_log.h"
#include "support/http_fault_server.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::HttpFault;
using ::ait::testing::HttpFaultServer;
using ::ait::testing::HttpSeen;
using ::ait::testing::Process;
using ::ait::testing::SpawnRanks;
using ::ait::testing::TempDir;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kKey[] = "AKIDEXAMPLE";
constexpr char kSecret[] = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr int kSteps = 30;
constexpr int kSaveEvery = 4;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// All samples that a run has delivered, by what its checkpoints say.
std::string DeliveredIn(const std::string& folder) {
  std::string ids;
  for (int step = 1; step <= kSteps; ++step) {
    const std::string file = folder + "/samples-" + std::to_string(step) + ".txt";
    if (step % kSaveEvery == 0 || step == kSteps) ids += Contents(file);
  }
  return ids;
}

class StreamExample : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shards_.emplace();
    const TempDir packed;
    Process::Spawn({.program = AIT_IMAGES, .args = {"pack", packed.path()}}).ExpectExit(0);
    for (const std::string name : {"100.tar", "101.tar"}) {
      for (const std::string& file : {name, name + ".aitidx"}) {
        (*shards_)["/bucket/train/" + file] = Contents(packed / ("train/" + file));
      }
    }
    const auto begin = std::chrono::steady_clock::now();
    whole_.emplace();
    server_.emplace(ait::testing::HttpFaultServerOptions{
        .access_key_id = kKey, .secret_access_key = kSecret, .region = "eu-west-1"});
    for (const auto& [path, bytes] : *shards_) server_->Put(path, bytes);
    std::vector<Process> ranks = Start(2, whole_->path());
    for (Process& rank : ranks) rank.ExpectExit(0);
    report_ = ranks[0].standard_output();
    duration_ = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
    requests_ = server_->requests();
  }
  static void TearDownTestSuite() {
    server_.reset();
    whole_.reset();
    shards_.reset();
  }

  static std::map<std::string, std::string> Environment() {
    return {{"AWS_ENDPOINT_URL_S3", server_->url()},
            {"AWS_REGION", "eu-west-1"},
            {"AWS_ACCESS_KEY_ID", kKey},
            {"AWS_SECRET_ACCESS_KEY", kSecret},
            {"AWS_SESSION_TOKEN", ""},
            {"AWS_PROFILE", ""}};
  }

  static std::vector<Process> Start(int ranks, const std::string& out) {
    return SpawnRanks({.program = AIT_STREAM,
                       .args = {"s3://bucket/train/", out, "--steps", std::to_string(kSteps),
                                "--save-every", std::to_string(kSaveEvery)},
                       .environment = Environment(),
                       .timeout = std::chrono::seconds(180)},
                      ranks);
  }

  /// Starts a run and kills its ranks at a random moment: of a run that begins, in its first half
  /// after a checkpoint; of one that goes on, any. False if it ended before.
  static bool StartAndKill(int ranks, const std::string& out, std::mt19937_64& random) {
    const bool begins = !std::filesystem::exists(out + "/checkpoint.json");
    const std::string samples =
        out + "/samples-" + std::to_string(kSaveEvery * (1 + random() % 3)) + ".txt";
    std::vector<Process> run = Start(ranks, out);
    while (begins && run[0].running() && !std::filesystem::exists(samples)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    const auto longest = begins ? milliseconds(50) : duration_;
    std::this_thread::sleep_for(milliseconds(random() % (longest.count() + 1)));
    const bool was_running = run[0].running();
    for (Process& rank : run) {
      if (rank.running()) rank.Signal(SIGKILL);
    }
    for (Process& rank : run) rank.Wait();
    return was_running;
  }

  static std::optional<std::map<std::string, std::string>> shards_;
  static std::optional<HttpFaultServer> server_;
  static std::optional<TempDir> whole_;  // of a run of two ranks that nobody killed
  static std::string report_;            // what it said
  static milliseconds duration_;
  static std::vector<HttpSeen> requests_;
  TempDir folder_;
};

std::optional<std::map<std::string, std::string>> StreamExample::shards_;
std::optional<HttpFaultServer> StreamExample::server_;
std::optional<TempDir> StreamExample::whole_;
std::string StreamExample::report_;
milliseconds StreamExample::duration_;
std::vector<HttpSeen> StreamExample::requests_;

TEST_F(StreamExample, Learns) {
  ASSERT_OK_AND_ASSIGN(const auto metrics, ReadMetricsLog(*whole_ / "metrics.jsonl"));
  ASSERT_EQ(metrics.size(), static_cast<std::size_t>(kSteps));
  ASSERT_TRUE(metrics.front().loss && metrics.back().loss);
  EXPECT_LT(*metrics.back().loss, 0.7 * *metrics.front().loss);
  EXPECT_THAT(report_, HasSubstr("2 ranks: 30 steps"));
}

TEST_F(StreamExample, DownloadsEachByteOncePerHost) {
  std::map<std::string, std::int64_t> downloaded;
  for (const HttpSeen& request : requests_) {
    if (request.method != "GET" || request.target.find('?') != std::string::npos) continue;
    EXPECT_EQ(request.status, 206) << request.target;
    long long first = 0, last = -1;
    const auto range = request.headers.find("range");
    ASSERT_NE(range, request.headers.end()) << request.target;
    ASSERT_EQ(std::sscanf(range->second.c_str(), "bytes=%lld-%lld", &first, &last), 2);
    downloaded[request.target] += last - first + 1;
  }
  for (const auto& [path, bytes] : *shards_) {
    EXPECT_EQ(downloaded[path], static_cast<std::int64_t>(bytes.size())) << path;
  }
}

TEST_F(StreamExample, DeliversNoSampleTwice) {
  std::map<std::string, int> times;
  std::string ids = DeliveredIn(whole_->path());
  int count = 0;
  for (std::size_t end = 0, begin = 0; (end = ids.find('\n', begin)) != std::string::npos;
       begin = end + 1, ++count) {
    EXPECT_EQ(++times[ids.substr(begin, end - begin)], 1);
  }
  EXPECT_EQ(count, kSteps * 128);
}

TEST_F(StreamExample, EndsWithTheSameBitsThoughItIsKilled) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int kills = 0;
  while (kills < 3 && StartAndKill(2, folder_.path(), random)) ++kills;
  std::vector<Process> ranks = Start(2, folder_.path());
  for (Process& rank : ranks) rank.ExpectExit(0);
  EXPECT_THAT(ranks[0].output(), HasSubstr("goes on after step"));
  EXPECT_GE(kills, 1);
  for (const char* name : {"weights-30.safetensors", "optimizer-30.safetensors"}) {
    EXPECT_TRUE(Contents(folder_ / name) == Contents(*whole_ / name)) << name << " differs";
  }
  EXPECT_EQ(Contents(folder_ / "checkpoint.json"), Contents(*whole_ / "checkpoint.json"));
  EXPECT_TRUE(DeliveredIn(folder_.path()) == DeliveredIn(whole_->path()));
  int states = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    states += file.path().extension() == ".safetensors" ? 1 : 0;
  }
  EXPECT_EQ(states, 2) << "what is no longer needed is removed";
}

TEST_F(StreamExample, GoesOnWithAnotherNumberOfRanks) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  EXPECT_TRUE(StartAndKill(2, folder_.path(), random));
  StartAndKill(3, folder_.path(), random);
  std::vector<Process> ranks = Start(1, folder_.path());
  ranks[0].ExpectExit(0, "goes on after step");
  EXPECT_TRUE(DeliveredIn(folder_.path()) == DeliveredIn(whole_->path()));
}

TEST_F(StreamExample, BearsAServerThatFailsNowAndThen) {
  for (int after = 2; after < 8; after += 3) {
    server_->Add({.kind = HttpFault::Kind::kStatus, .after = after, .status = 503});
    server_->Add(
        {.kind = HttpFault::Kind::kDropAt, .after = after, .method = "GET", .at_byte = 99});
  }
  std::vector<Process> ranks = Start(2, folder_.path());
  for (Process& rank : ranks) rank.ExpectExit(0);
  server_->ClearFaults();
  EXPECT_TRUE(Contents(folder_ / "weights-30.safetensors") ==
              Contents(*whole_ / "weights-30.safetensors"));
}

TEST_F(StreamExample, ExplainsWhatIsWrong) {
  const auto run = [&](std::vector<std::string> args, const std::string& secret = kSecret) {
    auto environment = Environment();
    environment["AWS_SECRET_ACCESS_KEY"] = secret;
    return Process::Spawn(
        {.program = AIT_STREAM, .args = std::move(args), .environment = environment});
  };
  run({"s3://bucket/train/"}).ExpectExit(1, "usage: stream URL OUT");
  run({"s3://bucket/train/", "x", "--steps", "0"}).ExpectExit(1, "--steps cannot be '0'");
  run({"s3://bucket/train/", "x", "--stop", "1"}).ExpectExit(1, "no option --stop");
  run({"s3://bucket/valid/", folder_ / "none"}).ExpectExit(1, "s3://bucket/valid/");
  run({"s3://bucket/train/", folder_ / "key"}, "guessed").ExpectExit(1, "SignatureDoesNotMatch");

  std::ofstream(folder_ / "checkpoint.json") << "{\"weights\":";
  run({"s3://bucket/train/", folder_.path()}).ExpectExit(1, "checkpoint.json is no checkpoint");
}

TEST_F(StreamExample, RefusesToGoOnWithOtherData) {
  std::filesystem::copy(*whole_ / "checkpoint.json", folder_ / "checkpoint.json");
  server_->Put("/bucket/other/100.tar", shards_->at("/bucket/train/101.tar"));
  Process run = Process::Spawn({.program = AIT_STREAM,
                                .args = {"s3://bucket/other/", folder_.path()},
                                .environment = Environment()});
  run.ExpectExit(1, "plan");
}

}  // namespace
}  // namespace ait
