// SPDX-License-Identifier: Apache-2.0
// What is special about ranks that are threads; the contract is in communicator_test.cc.
#include "ait/comm/thread_group.h"

#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

/// Runs `body(rank, its number)` on a thread for each rank.
template <typename Body>
void OnThreads(const std::vector<std::shared_ptr<Communicator>>& ranks, Body body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&] { body(*rank, rank->rank().value()); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadGroup, RanksKnowTheirPlace) {
  const auto ranks = MakeThreadGroup(WorldSize(3), {.timeout = std::chrono::seconds(7)});
  ASSERT_EQ(ranks.size(), 3u);
  for (int r = 0; r < 3; ++r) {
    const Communicator& rank = *ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(rank.rank(), Rank(r));
    EXPECT_EQ(rank.size(), WorldSize(3));
    EXPECT_EQ(rank.transport_name(), "threads");
    EXPECT_EQ(rank.options().timeout, std::chrono::seconds(7));
  }
}

TEST(ThreadGroup, ManyMoreRanksThanCores) {
  OnThreads(MakeThreadGroup(WorldSize(40)), [](Communicator& rank, int r) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::int64_t> x(5000, r);
      EXPECT_OK(rank.AllReduce(View(x), ReduceOp::kSum).Wait());
      EXPECT_EQ(x, std::vector<std::int64_t>(5000, 39 * 40 / 2));
    }
  });
}

TEST(ThreadGroup, OneThreadMayIssueForAllRanks) {
  const auto ranks = MakeThreadGroup(WorldSize(8));
  std::vector<std::int64_t> values(8);
  std::vector<Work> works;
  for (std::size_t r = 0; r < 8; ++r) {
    values[r] = static_cast<std::int64_t>(1) << r;
    works.push_back(ranks[r]->AllReduce(View(std::span(values).subspan(r, 1)), ReduceOp::kSum));
  }
  EXPECT_OK(WaitAll(works));
  EXPECT_EQ(values, std::vector<std::int64_t>(8, 255));
}

TEST(ThreadGroup, RandomOperationsAtRandomMoments) {
  OnThreads(MakeThreadGroup(WorldSize(5)), [](Communicator& rank, int r) {
    std::mt19937 common(1);  // the same choices on all ranks
    std::mt19937 own(static_cast<unsigned>(r));
    std::vector<Work> works;
    std::vector<std::unique_ptr<std::vector<float>>> memory;
    for (int i = 0; i < 400; ++i) {
      const std::size_t count = common() % 300;
      const bool is_broadcast = common() % 2 == 0;
      const Rank root(static_cast<int>(common() % 5));
      auto& x =
          *memory.emplace_back(std::make_unique<std::vector<float>>(count, static_cast<float>(r)));
      works.push_back(is_broadcast ? rank.Broadcast(View(x), root)
                                   : rank.AllReduce(View(x), ReduceOp::kSum));
      const float expected = is_broadcast ? static_cast<float>(root.value()) : 10.0f;
      if (own() % 3 == 0) {
        EXPECT_OK(works.back().Wait());
        EXPECT_EQ(x, std::vector<float>(count, expected)) << "operation " << i;
      }
      if (own() % 16 == 0) std::this_thread::yield();
    }
    EXPECT_OK(WaitAll(works));
  });
}

TEST(ThreadGroup, ACallbackMayDropTheCommunicator) {
  auto ranks = MakeThreadGroup(WorldSize(2));
  std::promise<void> dropped;
  std::vector<float> x(100, 1.0f);
  std::vector<float> y(100, 2.0f);
  const Work work = ranks[0]->AllReduce(View(x), ReduceOp::kSum);
  work.Then([&, last = std::move(ranks[0])](const Status&) mutable {
    last.reset();
    dropped.set_value();
  });
  EXPECT_OK(ranks[1]->AllReduce(View(y), ReduceOp::kSum).Wait());
  EXPECT_OK(work.Wait());
  EXPECT_EQ(x, std::vector<float>(100, 3.0f));
  dropped.get_future().wait();
}

TEST(ThreadGroup, ACallbackMayIssueTheNextOperation) {
  const auto ranks = MakeThreadGroup(WorldSize(2));
  OnThreads(ranks, [](Communicator& rank, int) {
    std::int64_t x = 1;
    std::promise<Work> next;
    const Work first = rank.AllReduce(View(std::span(&x, 1)), ReduceOp::kSum);
    first.Then([&](const Status&) {
      next.set_value(rank.AllReduce(View(std::span(&x, 1)), ReduceOp::kSum));
    });
    EXPECT_OK(next.get_future().get().Wait());
    EXPECT_EQ(x, 4);
  });
}

TEST(ThreadGroup, DeadlineTellsWhatTheMissingRankDidLast) {
  const auto ranks = MakeThreadGroup(WorldSize(3));
  std::vector<float> x(10);
  std::vector<Work> works;
  for (const auto& rank : ranks) works.push_back(rank->Barrier({.label = "step 11"}));
  ASSERT_OK(WaitAll(works));
  const Work work = ranks[2]->AllReduce(
      View(x), ReduceOp::kSum, {.timeout = std::chrono::milliseconds(10), .label = "step 12"});
  EXPECT_THAT(work.Wait(),
              StatusIs(StatusCode::kDeadlineExceeded,
                       HasSubstr("ranks 0, 1 did not come (rank 0 has finished barrier, sequence "
                                 "1, step 11; rank 1 has finished barrier, sequence 1, step 11)")));
}

/// The one behind has the shorter deadline: it ends in time, and with it what it waits for.
TEST(ThreadGroup, TheShortestDeadlineInTheQueueHolds) {
  const auto ranks = MakeThreadGroup(WorldSize(2));
  const Work first = ranks[0]->Barrier();
  const Work second = ranks[0]->Barrier({.timeout = std::chrono::milliseconds(10)});
  for (const Work& work : {second, first}) {
    EXPECT_THAT(work.Wait(),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1 did not come")));
  }
}

TEST(ThreadGroup, AMessageThatWaitsCanBeTakenBack) {
  const auto ranks = MakeThreadGroup(WorldSize(2));
  std::vector<float> x(10, 1.0f);
  std::vector<float> y(10);
  const Work taken_back = ranks[0]->Send(View(x), Rank(1));
  taken_back.Cancel();
  EXPECT_THAT(taken_back.Wait(), StatusIs(StatusCode::kCancelled, HasSubstr("rank 0: send")));
  const Work sent = ranks[0]->Send(View(x), Rank(1));
  EXPECT_OK(ranks[1]->Receive(View(y), Rank(0)).Wait());
  EXPECT_OK(sent.Wait());
  EXPECT_EQ(x, y);
}

TEST(ThreadGroup, SurvivorsMayBeAskedForAgainAfterADeadline) {
  auto ranks = MakeThreadGroup(WorldSize(3));
  ranks[2].reset();
  EXPECT_THAT(ranks[0]->Survivors({.timeout = std::chrono::milliseconds(20)}).status(),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1 lives, but did not call")));
  std::thread late([&] {
    const auto left = ranks[1]->Survivors();
    ASSERT_OK(left.status());
    EXPECT_OK((*left)->Barrier().Wait());
  });
  const auto left = ranks[0]->Survivors();
  ASSERT_OK(left.status());
  EXPECT_EQ((*left)->size(), WorldSize(2));
  EXPECT_OK((*left)->Barrier().Wait());
  late.join();
}

}  // namespace
}  // namespace ait
