// SPDX-License-Identifier: Apache-2.0
// bench_pool: allocating from and giving back to a pool, beside malloc.
//
//   SIZE/THREADS/ns        a pair of allocate and free; every thread on its own, all at once
//   mixed/THREADS/ns       16 blocks held, of random sizes from 64 KiB to 64 MiB
//   waste                  the most that rounding adds, over sizes from 64 KiB to 64 MiB
//
// Pool and malloc take turns in one process; values are medians over batches of pairs, of wall time of
// the slowest thread. No block is written: first touch is bench_memory's subject. Setting: rounds=31.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/memory/pool.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

/// Keeps the compiler from dropping a block that nobody reads.
void Use(void* block) { asm volatile("" : : "r"(block) : "memory"); }

using Pair = std::function<void(int)>;  // repetitions

/// Nanoseconds of a repetition, one value a round, of several ways that take turns: that of the
/// slowest of `threads` threads that do the same at once.
std::vector<std::vector<double>> TakeTurns(const std::vector<Pair>& ways, int threads, int rounds,
                                           int repetitions) {
  std::vector<std::vector<double>> times(ways.size());
  std::vector<double> of_thread(static_cast<std::size_t>(threads));
  std::barrier together(threads);
  const auto run = [&](std::size_t thread) {
    for (int round = -2; round < rounds; ++round) {
      for (std::size_t way = 0; way < ways.size(); ++way) {
        together.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        ways[way](repetitions);
        of_thread[thread] =
            std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
                .count() /
            repetitions;
        together.arrive_and_wait();
        if (thread == 0 && round >= 0) times[way].push_back(*std::ranges::max_element(of_thread));
      }
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  return times;
}

Pair PoolPair(MemoryResource& pool, std::size_t bytes) {
  return [&pool, bytes](int repetitions) {
    for (int i = 0; i < repetitions; ++i) {
      void* const block = *pool.Allocate(bytes);
      Use(block);
      pool.Deallocate(block, bytes);
    }
  };
}

Pair MallocPair(std::size_t bytes) {
  return [bytes](int repetitions) {
    for (int i = 0; i < repetitions; ++i) {
      void* const block = std::malloc(bytes);
      Use(block);
      std::free(block);
    }
  };
}

/// Holds 16 blocks; each repetition gives one back and takes another size.
Pair Mixed(const std::function<void*(std::size_t)>& allocate,
           const std::function<void(void*, std::size_t)>& deallocate) {
  return [=](int repetitions) {
    struct Held {
      void* block = nullptr;
      std::size_t bytes = 0;
    };
    std::array<Held, 16> held;
    std::uint64_t random = 1;
    for (int i = 0; i < repetitions; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      Held& next = held[(random >> 40) % held.size()];
      if (next.block != nullptr) deallocate(next.block, next.bytes);
      // From 64 KiB to 64 MiB, each doubling as likely as another.
      const std::size_t doubling = std::size_t{1} << (16 + (random >> 50) % 10);
      next.bytes = doubling + (random >> 20) % doubling;
      next.block = allocate(next.bytes);
      Use(next.block);
    }
    for (const Held& last : held) {
      if (last.block != nullptr) deallocate(last.block, last.bytes);
    }
  };
}

void Measure(Report& report, const std::shared_ptr<PoolResource>& pool, int threads, int rounds) {
  struct Size {
    const char* name;
    std::size_t bytes;
  };
  for (const Size& size : {Size{"64KiB", std::size_t{64} << 10},
                           {"1MiB", std::size_t{1} << 20},
                           {"8MiB", std::size_t{8} << 20},
                           {"64MiB", std::size_t{64} << 20}}) {
    const auto times =
        TakeTurns({PoolPair(*pool, size.bytes), MallocPair(size.bytes)}, threads, rounds, 2000);
    const double ns = Median(times[0]), baseline = Median(times[1]);
    report.AddValue(std::string(size.name) + "/" + std::to_string(threads) + "t/ns", ns, "ns",
                    "malloc", baseline, baseline / ns);
  }
  const auto times =
      TakeTurns({Mixed([&](std::size_t bytes) { return *pool->Allocate(bytes); },
                       [&](void* block, std::size_t bytes) { pool->Deallocate(block, bytes); }),
                 Mixed([](std::size_t bytes) { return std::malloc(bytes); },
                       [](void* block, std::size_t) { std::free(block); })},
                threads, rounds, 2000);
  const double ns = Median(times[0]), baseline = Median(times[1]);
  report.AddValue("mixed/" + std::to_string(threads) + "t/ns", ns, "ns", "malloc", baseline,
                  baseline / ns);
}

/// The most that a block takes beyond what was asked for, as a part of what was asked for.
double LargestWaste(PoolResource& pool) {
  double worst = 0;
  for (std::size_t bytes = (std::size_t{64} << 10) + 1; bytes <= std::size_t{64} << 20;
       bytes += bytes / 23 + 1) {
    void* const block = *pool.Allocate(bytes);
    worst = std::max(worst,
                     static_cast<double>(pool.UsableSize(block)) / static_cast<double>(bytes) - 1);
    pool.Deallocate(block, bytes);
  }
  return worst;
}

int Run(int argc, char** argv) {
  Report report(argc, argv);
  const int rounds = std::stoi(report.Setting("rounds", "31"));
  const auto pool = ThrowOnError(PoolResource::Create());
  for (const int threads : {1, 2}) Measure(report, pool, threads, rounds);
  const double waste = LargestWaste(*pool);
  report.AddValue("waste", waste, "of asked", "allowed", 0.125,
                  waste <= 0.125 ? 0.125 / std::max(waste, 1e-9) : 0);
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Run(argc, argv); }
