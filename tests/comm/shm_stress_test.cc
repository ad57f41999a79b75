// SPDX-License-Identifier: Apache-2.0
// Random collectives over shared memory with checked results: kinds, dtypes, counts, memory, groups and
// depth are drawn from a seed that all ranks share. Usage: shm_stress_test [seconds=3]
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/memory/buffer.h"
#include "comm/shm_ranks.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::IsOk;
using Group = std::shared_ptr<Communicator>;
using Element = std::int64_t;  // exact sums, so every result is known

int seconds = 3;

/// Value `i` of `rank` in operation `number`.
Element Value(std::uint64_t number, int rank, std::int64_t i) {
  return static_cast<Element>(
      (number * 31 + static_cast<std::uint64_t>(rank) * 7 + static_cast<std::uint64_t>(i)) % 1009);
}

/// An operation in flight: its buffers, and what must be in the output.
struct Flight {
  std::uint64_t number = 0;
  int kind = 0;
  int root = 0;
  std::vector<std::int64_t> counts;  // parts
  HostBuffer arena;
  std::vector<Element> heap;
  Buffer whole;  // world-size parts
  Buffer part;   // this rank's part of it
  Work work{OkStatus()};
};

class Player {
 public:
  Player(Group group, std::uint64_t seed)
      : group_(std::move(group)),
        rank_(group_->rank().value()),
        size_(group_->size().value()),
        shared_(seed),
        own_(seed + 1 + static_cast<std::uint64_t>(rank_)) {}

  /// One operation, the same kind on all ranks; waits for the oldest if `depth` are in flight.
  void Play() {
    if (flights_.size() >= 1 + shared_() % 6) Finish();
    Flight flight = Make();
    Issue(flight);
    flights_.push_back(std::move(flight));
  }

  void Drain() {
    while (!flights_.empty()) Finish();
  }

 private:
  Flight Make() {
    Flight flight;
    flight.number = ++number_;
    flight.kind = static_cast<int>(shared_() % 6);
    flight.root = static_cast<int>(shared_() % static_cast<std::uint64_t>(size_));
    const bool even = flight.kind == 0 || flight.kind == 3 || flight.kind == 4;
    std::int64_t total = 0;
    const std::uint64_t scale = shared_() % 8;
    for (int r = 0; r < size_; ++r) {
      std::int64_t count = static_cast<std::int64_t>(shared_() % (std::uint64_t{1} << (2 * scale)));
      if (even && r > 0) count = flight.counts[0];
      flight.counts.push_back(count);
      total += count;
    }
    Element* data = nullptr;
    const auto elements = static_cast<std::size_t>(2 * total + 1);
    if (own_() % 2 == 0) {
      auto buffer = HostBuffer::Create(group_->memory(), elements * sizeof(Element));
      EXPECT_THAT(buffer, IsOk());
      flight.arena = *std::move(buffer);
      data = reinterpret_cast<Element*>(flight.arena.data());
    } else {
      flight.heap.resize(elements);
      data = flight.heap.data();
    }
    const std::int64_t skip = static_cast<std::int64_t>(own_() % 2);
    flight.whole = {data + skip, total, DType::kInt64};
    std::int64_t before = 0;
    for (int r = 0; r < rank_; ++r) before += flight.counts[static_cast<std::size_t>(r)];
    flight.part = flight.whole.Slice(before, flight.counts[static_cast<std::size_t>(rank_)]);
    for (std::int64_t i = 0; i < total; ++i) data[skip + i] = Value(flight.number, rank_, i);
    return flight;
  }

  void Issue(Flight& flight) {
    Communicator& group = *group_;
    const Rank root(flight.root);
    switch (flight.kind) {
      case 0:
        flight.work = group.AllReduce(flight.whole, ReduceOp::kSum);
        break;
      case 1:
        flight.work = group.ReduceScatter(flight.whole, flight.part, flight.counts, ReduceOp::kMax);
        break;
      case 2:
        flight.work = group.AllGather(flight.part, flight.whole, flight.counts);
        break;
      case 3:
        flight.work = group.Broadcast(flight.whole, root);
        break;
      case 4:
        flight.work = group.Gather(flight.part, flight.whole, root);
        break;
      default:
        flight.work = group.Scatter(flight.whole, flight.part, flight.counts, root);
        break;
    }
  }

  void Finish() {
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    ASSERT_OK(flight.work.Wait());
    const auto* whole = static_cast<const Element*>(flight.whole.data);
    const auto* part = static_cast<const Element*>(flight.part.data);
    const std::int64_t before = part - whole;
    const auto value = [&](int rank, std::int64_t i) { return Value(flight.number, rank, i); };
    for (std::int64_t i = 0; i < flight.part.count; ++i) {
      Element expected = 0;
      if (flight.kind == 0) {
        for (int r = 0; r < size_; ++r) expected += value(r, before + i);
      } else if (flight.kind == 1) {
        for (int r = 0; r < size_; ++r) expected = std::max(expected, value(r, before + i));
      } else if (flight.kind == 3 || flight.kind == 5) {
        expected = value(flight.root, before + i);
      } else {
        expected = value(rank_, before + i);
      }
      ASSERT_EQ(part[i], expected) << "operation " << flight.number << ", kind " << flight.kind;
    }
    const bool is_gathered = flight.kind == 2 || (flight.kind == 4 && rank_ == flight.root);
    std::int64_t at = 0;
    for (int r = 0; is_gathered && r < size_; ++r) {
      for (std::int64_t i = 0; i < flight.counts[static_cast<std::size_t>(r)]; ++i, ++at) {
        ASSERT_EQ(whole[at], value(r, at)) << "operation " << flight.number;
      }
    }
  }

  const Group group_;
  const int rank_;
  const int size_;
  std::mt19937_64 shared_;  // the same on all ranks
  std::mt19937_64 own_;
  std::uint64_t number_ = 0;
  std::deque<Flight> flights_;
};

/// One rank: plays in the group of all and in a subgroup, from two threads at once, and makes new
/// subgroups now and then.
void PlayRank(const Group& all, std::uint64_t seed) {
  auto sums = all->Split(0, all->rank().value());  // decides together when to stop
  auto second = all->Split(0, -all->rank().value());
  ASSERT_THAT(sums, IsOk());
  ASSERT_THAT(second, IsOk());
  const Time end = SystemClock().now() + std::chrono::seconds(seconds);
  for (std::uint64_t round = 0;; ++round) {
    std::int64_t stop = SystemClock().now() >= end;
    ASSERT_OK((*sums)->AllReduce(View(std::span(&stop, 1)), ReduceOp::kMax).Wait());
    if (stop != 0) break;
    auto half = all->Split(all->rank().value() % 2, 0);
    ASSERT_THAT(half, IsOk());
    std::thread beside([&] {
      Player player(*second, seed + round);
      for (int i = 0; i < 60; ++i) player.Play();
      player.Drain();
    });
    {
      Player player(all, seed + 1000 + round);
      Player other(*half, seed + 2000 + round);
      for (int i = 0; i < 60; ++i) {
        player.Play();
        other.Play();
      }
      player.Drain();
      other.Drain();
    }
    beside.join();
  }
}

TEST(SharedMemoryStress, RandomCollectivesAreRight) {
  for (const int size : {2, 3, 5}) {
    auto ranks = internal::MakeShmThreadRanks(
        WorldSize(size), {.shared_memory = {.staging = KiB(64)}, .start = ~std::uint64_t{0} - 50});
    ASSERT_THAT(ranks, IsOk());
    std::vector<std::thread> threads;
    for (auto& rank : *ranks) {
      threads.emplace_back([&rank, size] {
        PlayRank(std::make_shared<Communicator>(std::move(rank)), static_cast<std::uint64_t>(size));
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) ait::seconds = std::atoi(argv[1]);
  return RUN_ALL_TESTS();
}
