// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_SUPPORT_RANK_TIMING_H_
#define AIT_BENCHMARKS_SUPPORT_RANK_TIMING_H_

// How each competitor of bench_comm measures a collective, and the line in which it says so. Every
// competitor is a program of its own, in several processes, and all of them time alike: as many calls in
// a row as fit a budget, several times over; a time is the mean of one such row.
//
//   RankTimer timer(argc, argv, rank == 0, [&] { Barrier(); }, [&](double x) { return MaxOverRanks(x); });
//   timer.Time("all_reduce", bytes, "arena", [&] { AllReduce(); });

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace ait::benchmarks {

/// Words of the command line: BUDGET_MS REPETITIONS KiB…
struct RankTimerOptions {
  double budget_ms = 30;
  int repetitions = 7;
  std::vector<std::int64_t> sizes;  // bytes

  RankTimerOptions(int argc, char** argv) {
    if (argc > 1) budget_ms = std::atof(argv[1]);
    if (argc > 2) repetitions = std::max(1, std::atoi(argv[2]));
    for (int i = 3; i < argc; ++i) sizes.push_back(std::atoll(argv[i]) << 10);
    if (sizes.empty()) sizes = {4 << 10, 64 << 10, 1 << 20, 25 << 20, 64 << 20};
  }
};

class RankTimer {
 public:
  /// `barrier` and `max` are collective; `prints` on one rank.
  RankTimer(RankTimerOptions options, bool prints, std::function<void()> barrier,
            std::function<double(double)> max)
      : options_(std::move(options)),
        prints_(prints),
        barrier_(std::move(barrier)),
        max_(std::move(max)) {}

  const RankTimerOptions& options() const { return options_; }

  /// **Collective.** Prints "AIT_BENCH <operation> <bytes> <memory> <least us> <median us>".
  template <typename Call>
  void Time(const char* operation, std::int64_t bytes, const char* memory, const Call& call) {
    Alternate({{operation, call}}, bytes, memory);
  }

  struct Named {
    const char* operation;
    std::function<void()> call;
    std::function<void()> before = [] {};
  };
  /// **Collective.** The same for several calls that take turns in every repetition.
  void Alternate(const std::vector<Named>& calls, std::int64_t bytes, const char* memory) {
    std::vector<std::vector<double>> us(calls.size());
    std::vector<int> rows;
    for (const Named& named : calls) {
      named.before();
      Row(named.call, 2);
      const double once = max_(Row(named.call, 3));
      rows.push_back(std::clamp(static_cast<int>(options_.budget_ms * 1e3 / once), 3, 20'000));
    }
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        calls[i].before();
        us[i].push_back(Row(calls[i].call, rows[i]));
      }
    }
    for (std::size_t i = 0; i < calls.size() && prints_; ++i) {
      std::sort(us[i].begin(), us[i].end());
      std::printf("AIT_BENCH %s %lld %s %.4f %.4f\n", calls[i].operation,
                  static_cast<long long>(bytes), memory, us[i].front(), us[i][us[i].size() / 2]);
      std::fflush(stdout);
    }
  }

 private:
  /// Microseconds of one call, the mean of so many.
  double Row(const std::function<void()>& call, int calls) {
    barrier_();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
    return us.count() / calls;
  }

  RankTimerOptions options_;
  bool prints_;
  std::function<void()> barrier_;
  std::function<double(double)> max_;
};

/// What rank `rank` gives before a timing: a number that depends on rank and place, and whose sums
/// over a few ranks are exact in fp32, bf16 and fp16.
inline float Given(int rank, std::int64_t i) {
  return static_cast<float>((i + 3 * rank) % 13 - 6) * static_cast<float>(rank + 1);
}
inline float GivenSum(int ranks, std::int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += Given(rank, i);
  return sum;
}

/// Ends the process: a benchmark of wrong results is none.
[[noreturn]] inline void FailWrong(const char* what, int rank, std::int64_t i, double seen,
                                   double expected) {
  std::fprintf(stderr, "%s: rank %d, element %lld is %g, must be %g\n", what, rank,
               static_cast<long long>(i), seen, expected);
  std::exit(1);
}

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_SUPPORT_RANK_TIMING_H_
