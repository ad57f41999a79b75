// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "ait/comm/thread_group.h"
#include "parallel/copy_job_internal.h"
#include "parallel/unit_shards_internal.h"
#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using ::ait::testing::IsOk;

TEST(CopyJobTest, SeveralThreadsMakeEveryCopyOnce) {
  std::vector<int> from(1 << 20);
  std::iota(from.begin(), from.end(), 0);
  std::vector<int> to(from.size());
  auto job = std::make_shared<CopyJob>(Stores::kStreaming);
  job->Add(to.data(), from.data(), 400);
  job->Add(to.data() + 100, from.data() + 100, static_cast<std::int64_t>(from.size() - 100) * 4);
  auto thread = CopyThread::Start();
  ASSERT_OK(thread);
  (*thread)->Push(job);
  job->Wait();
  EXPECT_TRUE(job->done());
  EXPECT_EQ(to, from);
}

TEST(CopyJobTest, ACancelledJobWritesNoMore) {
  std::vector<int> from(1 << 20, 1);
  std::vector<int> to(from.size());
  CopyJob job;
  job.Add(to.data(), from.data(), static_cast<std::int64_t>(from.size()) * 4);
  job.Cancel();
  EXPECT_TRUE(job.done());
  job.Help();
  job.Wait();
  EXPECT_EQ(to.back(), 0);
  CopyJob empty;
  empty.Wait();
  EXPECT_TRUE(empty.done());
}

void RunRanks(int ranks, const std::function<void(std::shared_ptr<Communicator>)>& main) {
  auto group = MakeThreadGroup(WorldSize(ranks));
  std::vector<std::thread> threads;
  for (auto& communicator : group) {
    threads.emplace_back([&main, communicator = std::move(communicator)] { main(communicator); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two units; the first has two buckets of several dtypes, the second slices of unlike sizes.
std::vector<ShardedBucket> Buckets(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> uneven(count);
  for (std::size_t r = 0; r < count; ++r) uneven[r] = 64 * static_cast<std::int64_t>(r);
  return {{.unit = 0, .slice_counts = std::vector<std::int64_t>(count, 64)},
          {.unit = 1, .slice_counts = uneven},
          {.unit = 0,
           .dtype = DType::kBFloat16,
           .slice_counts = std::vector<std::int64_t>(count, 128)}};
}

void FillAndStore(UnitShards& shards, int unit, char salt) {
  auto block = shards.Take(unit);
  ASSERT_OK(block);
  for (std::int64_t i = 0; i < shards.bytes(unit); ++i) {
    (*block)[i] = static_cast<std::byte>(i * 7 / 4 + salt);
  }
  shards.Store(unit);
  shards.Drop(unit);
}

void ExpectWhole(UnitShards& shards, int unit, char salt) {
  const auto block = shards.Finish(unit);
  ASSERT_OK(block);
  for (std::int64_t i = 0; i < shards.bytes(unit); ++i) {
    ASSERT_EQ((*block)[i], static_cast<std::byte>(i * 7 / 4 + salt)) << i;
  }
}

class UnitShardsTest : public ::testing::TestWithParam<int> {};

TEST_P(UnitShardsTest, WhatWasStoredInSlicesIsGatheredWhole) {
  for (const int prefetch : {0, 2}) {
    RunRanks(GetParam(), [&](const std::shared_ptr<Communicator>& communicator) {
      auto shards =
          UnitShards::Create(communicator, {"a", "b"}, Buckets(GetParam()), {.prefetch = prefetch});
      ASSERT_OK(shards);
      FillAndStore(**shards, 0, 3);
      FillAndStore(**shards, 1, 5);
      ASSERT_OK(communicator->Barrier().Wait());
      ASSERT_OK((*shards)->Start(1));
      ExpectWhole(**shards, 0, 3);
      ExpectWhole(**shards, 1, 5);
      (*shards)->Drop(0);
      ExpectWhole(**shards, 0, 3);
      ASSERT_OK((*shards)->Start(1));  // is whole already
      const GatherCounters counters = (*shards)->TakeCounters();
      EXPECT_EQ(counters.gathers, GetParam() == 1 ? 2 : 3) << "a unit of no bytes is not gathered";
      EXPECT_EQ(counters.bytes, 2 * (*shards)->bytes(0) + (*shards)->bytes(1));
      ASSERT_OK(communicator->Barrier().Wait());  // the peers have read
    });
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, UnitShardsTest, ::testing::Values(1, 2, 3, 7));

TEST(UnitShardsTest, KeepsOneSliceAndReusesBlocks) {
  RunRanks(2, [](const std::shared_ptr<Communicator>& communicator) {
    auto shards = UnitShards::Create(communicator, {"a", "b"}, Buckets(2), {.prefetch = 1});
    ASSERT_OK(shards);
    FillAndStore(**shards, 0, 1);
    FillAndStore(**shards, 1, 1);
    ASSERT_OK(communicator->Barrier().Wait());
    const int rank = communicator->rank().value();
    EXPECT_EQ((*shards)->shard_bytes(), 64 * 4 + 128 * 2 + rank * 64 * 4);
    EXPECT_EQ((*shards)->shard(1).count, rank * 64);
    for (int i = 0; i < 10; ++i) {
      for (const int unit : {0, 1}) {
        ASSERT_OK((*shards)->Finish(unit).status());
        (*shards)->Drop(unit);
      }
    }
    EXPECT_EQ((*shards)->peak_block_bytes(), (*shards)->bytes(0)) << "the larger one, reused";
    ASSERT_OK(communicator->Barrier().Wait());
  });
}

}  // namespace
}  // namespace ait::internal
