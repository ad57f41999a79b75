// SPDX-License-Identifier: Apache-2.0
// What a TokenDataset finds out before and while it starts.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ait/comm/thread_group.h"
#include "ait/data/token_dataset.h"
#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteCountingFile;
using ::testing::HasSubstr;

// What each of two ranks is told at start.
std::vector<Status> AgreeOver(const std::function<TokenDatasetOptions(int rank)>& options_of,
                              const std::function<std::string(int rank)>& corpus_of) {
  std::vector<Status> statuses(2);
  std::vector<std::thread> ranks;
  for (const auto& communicator : MakeThreadGroup(WorldSize(2), {})) {
    ranks.emplace_back([&, communicator] {
      const int rank = communicator->rank().value();
      TokenDatasetOptions options = options_of(rank);
      options.shard = {Rank(rank), WorldSize(2)};
      auto data = TokenDataset::Open(corpus_of(rank), options);
      statuses[static_cast<std::size_t>(rank)] =
          data.ok() ? data->AgreeOver(*communicator) : data.status();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return statuses;
}

TEST(TokenDatasetStart, RanksThatReadSomethingElseAreNamedAtStart) {
  const TempDir dir;
  WriteCountingFile(dir / "a", 1000, {.dtype = DType::kUInt16, .vocabulary_size = 1000});
  WriteCountingFile(dir / "b", 1001, {.dtype = DType::kUInt16, .vocabulary_size = 1000});
  const auto seed_is_one = [](int) {
    return TokenDatasetOptions{.sequence_length = 9, .seed = 1, .epochs = kUnlimitedEpochs};
  };
  const auto corpus = [&](int) { return dir / "a"; };
  for (const Status& status : AgreeOver(seed_is_one, corpus)) EXPECT_OK(status);
  for (const Status& status :
       AgreeOver(seed_is_one, [&](int rank) { return dir / (rank == 0 ? "a" : "b"); })) {
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("tokens: 1001")));
  }
  for (const Status& status : AgreeOver(
           [&](int rank) {
             TokenDatasetOptions options = seed_is_one(rank);
             options.seed = static_cast<std::uint64_t>(rank);
             return options;
           },
           corpus)) {
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 1 has seed: 1")));
  }
}

TEST(TokenDatasetStart, AUrlIsToldHowToBeStaged) {
  EXPECT_THAT(TokenDataset::Open("s3://bucket/corpus", {}),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("ait stage s3://bucket/corpus")));
}

// A source that throws what is no std::exception.
class RudeSource final : public TokenSource {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t token_count() const override { return 100; }
  std::int64_t vocabulary_size() const override { return 10; }
  std::uint64_t digest() const override { return 1; }
  Status Read(std::int64_t, std::span<std::int64_t>) const override { throw 7; }

 private:
  const std::string name_ = "rude";
};

TEST(TokenDatasetStart, WhateverASourceThrowsIsAnError) {
  for (const Bytes prefetch : {Bytes(0), MiB(1)}) {
    ASSERT_OK_AND_ASSIGN(auto data,
                         TokenDataset::Create(std::make_shared<RudeSource>(),
                                              {.sequence_length = 9, .prefetch = prefetch}));
    EXPECT_EQ(data.Next(), nullptr);
    EXPECT_THAT(data.status(), StatusIs(StatusCode::kInternal, HasSubstr("threw")));
  }
}

}  // namespace
}  // namespace ait
