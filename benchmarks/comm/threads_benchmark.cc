// SPDX-License-Identifier: Apache-2.0
// Collectives among threads, beside one thread that does the same work in a plain loop.
//
//   bench_threads [--json FILE] [RANKS=2]
//
// The limit is a memcpy by as many threads at once that moves as many bytes through memory: an
// all-reduce of S bytes over N ranks reads N·S and writes N·S, an all-gather likewise; a
// reduce-scatter reads N·S and writes S.

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/float16.h"
#include "ait/comm/thread_group.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

/// Milliseconds of each of several functions: medians of rounds in which each has its turn.
std::vector<double> Times(const std::vector<std::function<void()>>& functions) {
  constexpr int kRounds = 15;
  std::vector<std::vector<double>> times(functions.size());
  for (int round = -2; round < kRounds; ++round) {  // two to warm up
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      functions[i]();
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
      if (round >= 0) times[i].push_back(ms.count());
    }
  }
  std::vector<double> result;
  for (const auto& samples : times) result.push_back(Median(samples));
  return result;
}

/// `bytes` copied by each of `threads` at once, in ms. The threads take turns by themselves: each
/// copies often enough for the start of a thread not to count.
double MemcpyTime(int threads, std::size_t bytes) {
  const int repeats = static_cast<int>(std::max<std::size_t>(1, (std::size_t{64} << 20) / bytes));
  std::vector<std::vector<std::byte>> from(static_cast<std::size_t>(threads),
                                           std::vector<std::byte>(bytes, std::byte{1}));
  auto to = from;
  const double ms = Times({[&] {
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < from.size(); ++t) {
      workers.emplace_back([&, t] {
        for (int i = 0; i < repeats; ++i) std::memcpy(to[t].data(), from[t].data(), bytes);
      });
    }
    for (std::thread& worker : workers) worker.join();
  }})[0];
  return ms / repeats;
}

template <typename T>
using Buffers = std::vector<std::vector<T>>;

template <typename T>
void SerialAllReduce(Buffers<T>& x) {
  for (std::size_t i = 0; i < x[0].size(); ++i) {
    float sum = static_cast<float>(x[0][i]);
    for (std::size_t r = 1; r < x.size(); ++r) sum += static_cast<float>(x[r][i]);
    for (auto& buffer : x) buffer[i] = static_cast<T>(sum);
  }
}

void SerialReduceScatter(const Buffers<float>& x, Buffers<float>& parts) {
  const std::size_t part = parts[0].size();
  for (std::size_t i = 0; i < part * parts.size(); ++i) {
    float sum = x[0][i];
    for (std::size_t r = 1; r < x.size(); ++r) sum += x[r][i];
    parts[i / part][i % part] = sum;
  }
}

void SerialAllGather(const Buffers<float>& parts, Buffers<float>& x) {
  for (auto& buffer : x) {
    for (std::size_t r = 0; r < parts.size(); ++r) {
      std::memcpy(buffer.data() + r * parts[r].size(), parts[r].data(),
                  parts[r].size() * sizeof(float));
    }
  }
}

using Ranks = std::vector<std::shared_ptr<Communicator>>;

/// Issues `call` for all ranks, then waits for all.
void OnAll(const Ranks& ranks, const std::function<Work(Communicator&, std::size_t)>& call) {
  std::vector<Work> works;
  for (std::size_t r = 0; r < ranks.size(); ++r) works.push_back(call(*ranks[r], r));
  if (Status status = WaitAll(works); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
  }
}

template <typename T>
void AllReduce(Report& report, const Ranks& ranks, const std::string& name, std::size_t bytes) {
  Buffers<T> x(ranks.size(), std::vector<T>(bytes / sizeof(T)));
  const std::vector<double> ms = Times({
      [&] {
        OnAll(ranks, [&](Communicator& rank, std::size_t r) {
          return rank.AllReduce(View(x[r]), ReduceOp::kSum);
        });
      },
      [&] { SerialAllReduce(x); },
  });
  report.AddTime(name, {.ms = ms[0],
                        .baseline = "serial loop",
                        .baseline_ms = ms[1],
                        .limit_ms = MemcpyTime(static_cast<int>(ranks.size()), bytes)});
}

void ReduceScatterAndAllGather(Report& report, const Ranks& ranks, const std::string& prefix,
                               const std::string& size, std::size_t bytes) {
  const std::size_t part = bytes / sizeof(float) / ranks.size();
  Buffers<float> x(ranks.size(), std::vector<float>(part * ranks.size()));
  Buffers<float> parts(ranks.size(), std::vector<float>(part));
  const std::vector<double> ms = Times({
      [&] {
        OnAll(ranks, [&](Communicator& rank, std::size_t r) {
          return rank.ReduceScatter(View(x[r]), View(parts[r]), ReduceOp::kSum);
        });
      },
      [&] { SerialReduceScatter(x, parts); },
      [&] {
        OnAll(ranks, [&](Communicator& rank, std::size_t r) {
          return rank.AllGather(View(parts[r]), View(x[r]));
        });
      },
      [&] { SerialAllGather(parts, x); },
  });
  const int threads = static_cast<int>(ranks.size());
  report.AddTime(prefix + "reduce_scatter/" + size + "/serial-loop",
                 {.ms = ms[0],
                  .baseline = "serial loop",
                  .baseline_ms = ms[1],
                  .limit_ms = MemcpyTime(threads, (bytes + bytes / ranks.size()) / 2)});
  report.AddTime(prefix + "all_gather/" + size + "/serial-loop",
                 {.ms = ms[2],
                  .baseline = "serial memcpy",
                  .baseline_ms = ms[3],
                  .limit_ms = MemcpyTime(threads, bytes)});
}

int Main(int argc, char** argv) {
  Report report(argc, argv);
  const int count = std::stoi(report.Setting("RANKS", "2"));
  const Ranks ranks = MakeThreadGroup(WorldSize(count));
  const std::string prefix = std::to_string(count) + "/";
  for (const auto& [size, bytes] : {std::pair<std::string, std::size_t>{"64KiB", 64u << 10},
                                    {"1MiB", 1u << 20},
                                    {"25MiB", 25u << 20}}) {
    AllReduce<float>(report, ranks, prefix + "all_reduce/" + size + "/serial-loop", bytes);
    AllReduce<BFloat16>(report, ranks, prefix + "all_reduce_bf16/" + size + "/serial-loop", bytes);
    AllReduce<Float16>(report, ranks, prefix + "all_reduce_fp16/" + size + "/serial-loop", bytes);
    ReduceScatterAndAllGather(report, ranks, prefix, size, bytes);
  }
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }
