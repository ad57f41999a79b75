// SPDX-License-Identifier: Apache-2.0
// The cache among several processes, killed ones too, and on disks that fail.
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "data/cache/cache_test_support.h"
#include "data/data_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::ait::testing::AllocatedBytes;
using ::ait::testing::Exit;
using ::ait::testing::Process;
using ::ait::testing::RandomText;
using ::ait::testing::ReadBytes;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::HasSubstr;

constexpr std::int64_t kPart = 4096;
constexpr std::int64_t kEntryFile = 5 * kPart;

class CacheProcessTest : public ::testing::Test {
 protected:
  CacheProcessTest() {
    for (const std::string& directory : {root_, cache_}) {
      std::filesystem::create_directory(directory);
    }
  }
  void Write(const std::string& name, std::size_t size) {
    WriteBytes(root_ + "/" + name, RandomText(size, ++seed_));
  }
  Process Start(const std::string& mode, std::int64_t budget, int delay,
                std::vector<std::string> names) {
    std::vector<std::string> args = {
        mode, root_, log_, cache_, std::to_string(budget), std::to_string(delay)};
    args.insert(args.end(), names.begin(), names.end());
    return Process::Spawn({.program = AIT_CACHE_PEER, .args = std::move(args)});
  }
  // The reads of the storage by all processes, each once.
  std::map<std::string, int> Reads() const {
    std::map<std::string, int> reads;
    std::istringstream in(ReadBytes(log_));
    for (std::string line; std::getline(in, line);) ++reads[line];
    return reads;
  }
  int MostReads() const {
    int most = 0;
    for (const auto& [read, count] : Reads()) most = std::max(most, count);
    return most;
  }

  const TempDir directory_;
  const std::string root_ = directory_ / "root", cache_ = directory_ / "cache",
                    log_ = directory_ / "log";
  unsigned seed_ = 0;
};

TEST_F(CacheProcessTest, OneOfManyDownloadsEachPart) {
  Write("a", 10 * kPart + 7);
  Write("b", 3 * kPart);
  std::vector<Process> peers;
  for (int i = 0; i < 4; ++i) peers.push_back(Start("read", 100 * kEntryFile, 20, {"a", "b"}));
  for (Process& peer : peers) {
    const Exit exit = peer.Wait();
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr("pass 0,"));
  }
  EXPECT_EQ(Reads().size(), 14u);
  EXPECT_EQ(MostReads(), 1);
}

TEST_F(CacheProcessTest, WhoWaitsForAKilledProcessTakesOver) {
  Write("a", kPart);
  Process first = Start("read", 100 * kEntryFile, 60'000, {"a"});
  for (int i = 0; i < 500 && Reads().empty(); ++i) std::this_thread::sleep_for(20ms);
  ASSERT_EQ(Reads().size(), 1u);
  Process second = Start("read", 100 * kEntryFile, 0, {"a"});
  std::this_thread::sleep_for(200ms);
  EXPECT_TRUE(second.running());
  EXPECT_EQ(MostReads(), 1);  // it waits
  first.Signal(SIGKILL);
  second.ExpectExit(0, "downloads 1, waits 1,");
  EXPECT_EQ(MostReads(), 2);
}

TEST_F(CacheProcessTest, ALeaseLivesAsLongAsItsProcess) {
  Write("a", 4 * kPart);
  Write("b", 4 * kPart);
  Process holder = Start("hold", kEntryFile, 0, {"a"});
  holder.ReadUntil("downloads");
  Start("read", kEntryFile, 0, {"b"}).ExpectExit(0, "downloads 0, waits 0, pass 4");
  Start("read", kEntryFile, 0, {"a"}).ExpectExit(0, "downloads 0, waits 0, pass 0");
  holder.Signal(SIGKILL);
  holder.Wait();
  Start("read", kEntryFile, 0, {"b"}).ExpectExit(0, "downloads 4, waits 0, pass 0");
}

TEST_F(CacheProcessTest, AKillAtAnyMomentLeavesACacheThatIsRight) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) {
    names.push_back(StrCat("f", i));
    Write(names.back(), static_cast<std::size_t>(1 + i * 3000));
  }
  const std::int64_t budget = 8 * kEntryFile;  // about half of it
  std::mt19937 random(7);
  for (int round = 0; round < 8; ++round) {
    std::vector<Process> peers;
    for (int i = 0; i < 3; ++i) peers.push_back(Start("loop", budget, 0, names));
    for (Process& peer : peers) {
      peer.ReadUntil("going");
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      EXPECT_TRUE(peer.running()) << peer.output();
      peer.Signal(SIGKILL);
    }
    for (Process& peer : peers) EXPECT_THAT(peer.Wait().output, Not(HasSubstr("wrong")));
    const Exit exit = Start("read", budget, 0, names).Wait();
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr("faults 0, damaged 0"));
    EXPECT_FALSE(std::filesystem::exists(cache_ + "/new"));
    EXPECT_LE(AllocatedBytes(cache_), budget + 16 * 4096);  // ext4 may take a block more for each
  }
}

TEST_F(CacheProcessTest, ADiskThatFailsIsPassedBy) {
  Write("a", 3 * kPart);
  Write("a.2", 3 * kPart);
  for (const auto& [mode, reason] : {std::pair{"full", "No space left"},
                                     {"read-only", "Read-only"},
                                     {"limit", "File too large"}}) {
    std::filesystem::remove_all(cache_);
    std::filesystem::create_directory(cache_);
    const Exit exit = Start(mode, kEntryFile * 4, 0, {"a"}).Wait();
    if (exit.output.starts_with("skipped")) continue;
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr(reason)) << mode;
    EXPECT_THAT(exit.output, Not(HasSubstr("faults 0"))) << mode;
  }
}

TEST_F(CacheProcessTest, AFullDiskIsAnErrorWhereAskedFor) {
  Write("a", 3 * kPart);
  Write("a.2", 3 * kPart);
  const Exit exit = Start("fail", kEntryFile * 4, 0, {"a"}).Wait();
  if (exit.output.starts_with("skipped")) GTEST_SKIP() << "no right to mount a small disk";
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("the disk tier of the cache: "));
  EXPECT_THAT(exit.output, HasSubstr("No space left"));
}

}  // namespace
}  // namespace ait
