// SPDX-License-Identifier: Apache-2.0

// The sums of collectives on one thread: two ranks' buffers, the sum written to both, as the owner of
// a slice does it; at every SIMD level of the processor.
//
//   bench_reduce_kernels [rounds=21]
//
// `<dtype>/<size>/<level>/<baseline>`: GB/s of all bytes read and written (4 per byte of a buffer).
// Baselines: `memcpy` of one buffer (2 bytes moved per byte) and `loop`, what one writes down first:
// a plain loop compiled for the build's target, then memcpy to the second buffer. The limit of
// float32 is a loop of AVX-512 intrinsics, where the processor has them.
// `streaming/<what>/<size>/cached`: the sum of two buffers into a third, and a copy, written past the
// caches, against the same through them.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/float16.h"
#include "ait/base/simd.h"
#include "comm/reduce.h"
#include "support/report.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ait {
namespace {

using Clock = std::chrono::steady_clock;

/// Seconds of one call, of so many calls that they take about 2 ms.
double Measure(const std::function<void()>& call, std::int64_t bytes) {
  const std::int64_t calls = std::max<std::int64_t>(1, (std::int64_t{20} << 20) / bytes);
  const auto begin = Clock::now();
  for (std::int64_t i = 0; i < calls; ++i) call();
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  return seconds.count() / static_cast<double>(calls);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void HandWritten(float* a, float* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 32) {
    const __m512 s = _mm512_add_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i));
    const __m512 t = _mm512_add_ps(_mm512_load_ps(a + i + 16), _mm512_load_ps(b + i + 16));
    _mm512_store_ps(a + i, s);
    _mm512_store_ps(a + i + 16, t);
    _mm512_store_ps(b + i, s);
    _mm512_store_ps(b + i + 16, t);
  }
}
bool HasHandWritten() { return BestSimdLevel() == SimdLevel::kAvx512; }
#else
void HandWritten(float*, float*, std::int64_t) {}
bool HasHandWritten() { return false; }
#endif

template <typename T>
void PlainLoop(T* __restrict a, T* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    a[i] = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
  std::memcpy(b, a, static_cast<std::size_t>(count) * sizeof(T));
}

/// Two buffers of zeros, so that repeated sums stay finite.
class TwoBuffers {
 public:
  explicit TwoBuffers(std::int64_t bytes) : memory_(static_cast<std::size_t>(2 * bytes + 4096)) {
    void* p = memory_.data();
    std::size_t space = memory_.size();
    first_ = static_cast<char*>(std::align(128, static_cast<std::size_t>(2 * bytes), p, space));
    second_ = first_ + bytes;
  }
  char* first() const { return first_; }
  char* second() const { return second_; }

 private:
  std::vector<char> memory_;
  char* first_;
  char* second_;
};

template <typename T>
void Bench(benchmarks::Report& report, std::string_view dtype, std::string_view size_name,
           std::int64_t bytes, int rounds) {
  const TwoBuffers buffers(bytes);
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(T));
  const void* in[] = {buffers.first(), buffers.second()};
  void* out[] = {buffers.first(), buffers.second()};
  T* a = reinterpret_cast<T*>(buffers.first());
  T* b = reinterpret_cast<T*>(buffers.second());
  std::vector<SimdLevel> levels;
  for (const SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (level <= BestSimdLevel()) levels.push_back(level);
  }
  std::vector<std::function<void()>> calls;
  for (const SimdLevel level : levels) {
    calls.push_back([&, level] {
      internal::ReduceRanks(in, out, count, kDTypeOf<T>, ReduceOp::kSum, internal::Stores::kCached,
                            level);
    });
  }
  calls.push_back([&] { internal::CopyBytes(b, a, static_cast<std::size_t>(bytes)); });
  calls.push_back([&] { PlainLoop(a, b, count); });
  const bool has_limit = std::is_same_v<T, float> && HasHandWritten();
  if (has_limit)
    calls.push_back(
        [&] { HandWritten(reinterpret_cast<float*>(a), reinterpret_cast<float*>(b), count); });
  std::vector<std::vector<double>> seconds(calls.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) seconds[i].push_back(Measure(calls[i], bytes));
  }
  const auto rate = [&](std::size_t i, double moved) {
    return moved * static_cast<double>(bytes) / benchmarks::Median(seconds[i]) / 1e9;
  };
  const std::size_t copy = levels.size();
  const auto limit = has_limit ? std::optional(rate(copy + 2, 4)) : std::nullopt;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::string name =
        std::string(dtype) + "/" + std::string(size_name) + "/" + std::string(Name(levels[i]));
    report.AddRate(name + "/memcpy", {.value = rate(i, 4),
                                      .unit = "GB/s",
                                      .baseline = "memcpy",
                                      .baseline_value = rate(copy, 2)});
    report.AddRate(name + "/loop", {.value = rate(i, 4),
                                    .unit = "GB/s",
                                    .baseline = "plain loop and memcpy",
                                    .baseline_value = rate(copy + 1, 4),
                                    .limit = limit});
  }
}

void BenchStreaming(benchmarks::Report& report, std::string_view size_name, std::int64_t bytes,
                    int rounds) {
  using internal::Stores;
  const TwoBuffers sources(bytes);
  const TwoBuffers target(bytes);
  const void* in[] = {sources.first(), sources.second()};
  void* out[] = {target.first()};
  const auto sum = [&](Stores stores) {
    return [&, stores] {
      internal::ReduceRanks(in, out, bytes / 4, DType::kFloat32, ReduceOp::kSum, stores);
    };
  };
  const auto copy = [&](Stores stores) {
    return [&, stores] {
      internal::CopyBytes(out[0], in[0], static_cast<std::size_t>(bytes), stores);
    };
  };
  const std::function<void()> calls[] = {sum(Stores::kStreaming), sum(Stores::kCached),
                                         copy(Stores::kStreaming), copy(Stores::kCached)};
  std::vector<double> seconds[4];
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 4; ++i) seconds[i].push_back(Measure(calls[i], bytes));
  }
  const auto add = [&](const std::string& name, double moved, int at) {
    const auto rate = [&](int i) {
      return moved * static_cast<double>(bytes) / benchmarks::Median(seconds[i]) / 1e9;
    };
    report.AddRate(
        "streaming/" + name + "/" + std::string(size_name) + "/cached",
        {.value = rate(at), .unit = "GB/s", .baseline = "cached", .baseline_value = rate(at + 1)});
  };
  add("sum", 3, 0);
  add("copy", 2, 2);
}

int Main(int argc, char** argv) {
  benchmarks::Report report(argc, argv);
  const int rounds = std::stoi(report.Setting("rounds", "21"));
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"25MiB", 25 << 20}};
  for (const auto& [name, bytes] : sizes) {
    Bench<float>(report, "float32", name, bytes, rounds);
    Bench<BFloat16>(report, "bfloat16", name, bytes, rounds);
    Bench<Float16>(report, "float16", name, bytes, rounds);
  }
  for (const auto& [name, bytes] : sizes) BenchStreaming(report, name, bytes, rounds);
  return report.Finish();
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) { return ait::Main(argc, argv); }
