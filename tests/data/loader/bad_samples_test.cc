// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/bad_samples.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <thread>

#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::ReadBytes;
using testing::StatusIs;
using testing::WriteBytes;

class BadSampleLogTest : public ::testing::Test {
 protected:
  testing::TempDir directory_;
  const std::string path_ = directory_.path() + "/bad.jsonl";
};

BadSample Bad(std::int64_t id, std::string shard = "a.tar") {
  return {.source = "train",
          .source_digest = 0xfeed,
          .id = id,
          .key = "key\xff\"",
          .shard = std::move(shard),
          .offset_bytes = 512,
          .size_bytes = 1024,
          .code = "DATA_LOSS",
          .reason = "half an image",
          .rank = Rank(2),
          .epoch = 3,
          .position = 17,
          .attempt = 1};
}

TEST(BadSampleTest, IsOneLineOfJson) {
  BadSample sample = Bad(5);
  sample.key = "line\nbreak";
  const std::string line = ToJson(sample);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = BadSampleFromJson(line);
  ASSERT_OK(read);
  EXPECT_EQ(*read, sample);
  EXPECT_OK(BadSampleFromJson(ToJson(Bad(5))));  // no UTF-8: replaced
  for (const std::string text : {"", "[]", "{}", R"({"id":"five"})"}) {
    EXPECT_THAT(BadSampleFromJson(text), StatusIs(StatusCode::kInvalidArgument));
  }
}

TEST_F(BadSampleLogTest, KeepsLinesOverRunsWithoutRepetition) {
  {
    auto log = BadSampleLog::Open(path_);
    ASSERT_OK(log);
    EXPECT_OK(log->Append(Bad(1)));
    EXPECT_OK(log->Append(Bad(2)));
    EXPECT_OK(log->Append(Bad(1)));
  }
  const std::string before = ReadBytes(path_);
  auto log = BadSampleLog::Open(path_);
  ASSERT_OK(log);
  EXPECT_OK(log->Append(Bad(2)));
  EXPECT_EQ(ReadBytes(path_), before);
  EXPECT_OK(log->Append(Bad(3)));
  const auto list = ReadBadSampleLog(path_);
  ASSERT_OK(list);
  ASSERT_EQ(list->size(), 3U);
  EXPECT_EQ((*list)[2].id, 3);
  EXPECT_EQ(SamplesOf(*list), (std::vector<SampleId>{{0xfeed, 1}, {0xfeed, 2}, {0xfeed, 3}}));
}

TEST_F(BadSampleLogTest, ATornLineIsCutWhereverItWasTorn) {
  const std::string first = ToJson(Bad(1)) + "\n";
  const std::string second = ToJson(Bad(2)) + "\n";
  for (std::size_t length = 0; length < second.size(); length += 5) {
    WriteBytes(path_, first + second.substr(0, length));
    ASSERT_OK_AND_ASSIGN(const auto read, ReadBadSampleLog(path_));
    ASSERT_EQ(read.size(), 1U);
    auto log = BadSampleLog::Open(path_);
    ASSERT_OK(log);
    ASSERT_OK(log->Append(Bad(2)));
    EXPECT_EQ(ReadBytes(path_), first + second);
  }
}

TEST_F(BadSampleLogTest, DamageIsNotSkipped) {
  WriteBytes(path_, ToJson(Bad(1)) + "\n{\"broken\n" + ToJson(Bad(2)) + "\n");
  EXPECT_THAT(ReadBadSampleLog(path_), StatusIs(StatusCode::kDataLoss, HasSubstr("line 2")));
  EXPECT_THAT(BadSampleLog::Open(path_), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(ReadBadSampleLog(path_ + ".gone"), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(BadSampleLog::Open(directory_.path() + "/gone/bad.jsonl"),
              StatusIs(StatusCode::kNotFound));
}

TEST_F(BadSampleLogTest, AFullDiskLeavesTheLinesBefore) {
  auto log = BadSampleLog::Open(path_);
  ASSERT_OK(log);
  ASSERT_OK(log->Append(Bad(1)));
  const std::string before = ReadBytes(path_);
  struct rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit low = {before.size() + 10, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status full = log->Append(Bad(2));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(full.ok());
  EXPECT_EQ(ReadBytes(path_), before);
  EXPECT_OK(log->Append(Bad(2)));
  ASSERT_OK_AND_ASSIGN(const auto list, ReadBadSampleLog(path_));
  EXPECT_EQ(list.size(), 2U);
}

// Two processes write to one list and are killed, again and again.
TEST_F(BadSampleLogTest, SurvivesTheKillOfItsWriters) {
  for (int round = 0; round < 20; ++round) {
    pid_t children[2] = {};
    for (int i = 0; i < 2; ++i) {
      children[i] = ::fork();
      ASSERT_GE(children[i], 0);
      if (children[i] == 0) {
        auto log = BadSampleLog::Open(path_);
        for (std::int64_t id = 0; log.ok() && id < 100'000; ++id) {
          BadSample sample = Bad(id);
          sample.rank = Rank(i);
          sample.epoch = round * 2 + i;
          if (!log->Append(sample).ok()) break;
        }
        ::_exit(0);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + round));
    for (const pid_t child : children) {
      ASSERT_EQ(::kill(child, SIGKILL), 0);
      ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    }
    ASSERT_OK_AND_ASSIGN(const auto list, ReadBadSampleLog(path_));
    // What each wrote is there from its first to its last, once.
    std::set<std::pair<std::int64_t, std::int64_t>> seen;
    for (const BadSample& sample : list) {
      EXPECT_TRUE(seen.insert({sample.epoch, sample.id}).second);
      EXPECT_TRUE(sample.id == 0 || seen.contains({sample.epoch, sample.id - 1}));
    }
  }
}

TEST(BadSampleBudgetTest, CountsInAllPerShardAndInARow) {
  BadSampleBudget total({.max_bad_samples = 2});
  EXPECT_OK(total.CountBad(Bad(1)));
  EXPECT_OK(total.CountBad(Bad(2)));
  EXPECT_THAT(total.CountBad(Bad(3)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("max_bad_samples")));
  BadSampleBudget shards({.max_bad_samples = 10, .max_bad_per_shard = 1});
  EXPECT_OK(shards.CountBad(Bad(1, "a")));
  EXPECT_OK(shards.CountBad(Bad(2, "b")));
  EXPECT_THAT(shards.CountBad(Bad(3, "a")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("max_bad_per_shard")));
  BadSampleBudget row({.max_bad_samples = 10, .max_bad_in_a_row = 1});
  EXPECT_OK(row.CountBad(Bad(1)));
  row.CountGood();
  EXPECT_OK(row.CountBad(Bad(2)));
  EXPECT_THAT(row.CountBad(Bad(3)), StatusIs(StatusCode::kDataLoss, HasSubstr("max_bad_in_a_row")));
}

}  // namespace
}  // namespace ait
