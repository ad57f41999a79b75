// SPDX-License-Identifier: Apache-2.0
// The floor of an all-reduce between two processes of one host: a forked peer, one shared mapping,
// spinning flags, nothing checked. A peer of bench_comm, which starts it:
//
//   peer_shm_floor BUDGET_MS REPETITIONS KiB…
//
// "arena": the tensors are in shared memory; each rank reads both and writes its result (4·S of traffic
// where the ranks share a cache). "all_reduce_in_place": the sums are written to the tensors themselves,
// which touches two tensors in place of four. "foreign": they are private; the best of three ways: staged (copy in,
// reduce own half, copy both halves out) and chunks that are copied in and summed by both, through two
// slots that stay in the cache, of 16, 64 and 256 KiB.

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "support/rank_timing.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ait::benchmarks {
namespace {

constexpr std::size_t kMost = std::size_t{64} << 20;

struct Shared {
  struct alignas(64) Flag {
    std::atomic<unsigned> epoch;
  };
  Flag flags[2];
  alignas(64) double values[2];
};

void* MapShared(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  std::memset(p, 0, bytes);
  return p;
}

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

struct Rank {
  int id;
  Shared* shared;
  float *slots[2], *mine, *out;
  unsigned epoch = 0;
  std::size_t slot = 0;  // in turn over all calls: one barrier a chunk is enough then

  void Barrier() {
    ++epoch;
    shared->flags[id].epoch.store(epoch, std::memory_order_release);
    while (static_cast<int>(shared->flags[1 - id].epoch.load(std::memory_order_acquire) - epoch) <
           0) {
      Pause();
    }
  }
};

using Add = void (*)(float* out, const float* a, const float* b, std::size_t n, bool streaming);

void AddPlain(float* out, const float* a, const float* b, std::size_t n, bool) {
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
using AddToBoth = void (*)(float* a, float* b, std::size_t n);

void AddToBothPlain(float* a, float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = a[i] + b[i];
}
#if defined(__x86_64__)
__attribute__((target("avx512f"))) void AddToBothAvx512(float* a, float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 16) {
    const __m512 sum = _mm512_add_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i));
    _mm512_store_ps(a + i, sum);
    _mm512_store_ps(b + i, sum);
  }
}
AddToBoth BestAddToBoth() {
  return __builtin_cpu_supports("avx512f") ? AddToBothAvx512 : AddToBothPlain;
}
__attribute__((target("avx512f"))) void AddAvx512(float* out, const float* a, const float* b,
                                                  std::size_t n, bool streaming) {
  for (std::size_t i = 0; i < n; i += 16) {
    const __m512 sum = _mm512_add_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i));
    if (streaming) {
      _mm512_stream_ps(out + i, sum);
    } else {
      _mm512_store_ps(out + i, sum);
    }
  }
}
__attribute__((target("avx2"))) void AddAvx2(float* out, const float* a, const float* b,
                                             std::size_t n, bool streaming) {
  for (std::size_t i = 0; i < n; i += 8) {
    const __m256 sum = _mm256_add_ps(_mm256_load_ps(a + i), _mm256_load_ps(b + i));
    if (streaming) {
      _mm256_stream_ps(out + i, sum);
    } else {
      _mm256_store_ps(out + i, sum);
    }
  }
}
Add BestAdd() {
  if (__builtin_cpu_supports("avx512f")) return AddAvx512;
  if (__builtin_cpu_supports("avx2")) return AddAvx2;
  return AddPlain;
}
#else
Add BestAdd() { return AddPlain; }
AddToBoth BestAddToBoth() { return AddToBothPlain; }
#endif
const AddToBoth kAddToBoth = BestAddToBoth();
const Add kAdd = BestAdd();

void ZeroCopy(Rank& r, std::size_t n) {
  r.Barrier();
  kAdd(r.out, r.slots[0], r.slots[1], n, n * 4 > (std::size_t{4} << 20));
  r.Barrier();
}

// Half of the sums each, written to both tensors: what an all-reduce in place has to move.
void InPlace(Rank& r, std::size_t n) {
  const std::size_t half = n / 2, low = static_cast<std::size_t>(r.id) * half;
  r.Barrier();
  kAddToBoth(r.slots[0] + low, r.slots[1] + low, half);
  r.Barrier();
}

void Staged(Rank& r, std::size_t n) {
  const std::size_t half = n / 2, low = static_cast<std::size_t>(r.id) * half, other = half - low;
  std::memcpy(r.slots[r.id] + other, r.mine + other, half * 4);  // only the half the peer reduces
  r.Barrier();
  kAdd(r.mine + low, r.mine + low, r.slots[1 - r.id] + low, half, false);
  std::memcpy(r.slots[r.id] + low, r.mine + low, half * 4);
  r.Barrier();
  std::memcpy(r.mine + other, r.slots[1 - r.id] + other, half * 4);
}

void Chunked(Rank& r, std::size_t n, std::size_t chunk) {
  for (std::size_t at = 0; at < n; at += chunk, r.slot ^= 1) {
    const std::size_t m = std::min(chunk, n - at);
    float* my = r.slots[r.id] + r.slot * chunk;
    const float* peer = r.slots[1 - r.id] + r.slot * chunk;
    std::memcpy(my, r.mine + at, m * 4);
    r.Barrier();
    kAdd(r.mine + at, r.mine + at, peer, m, false);
  }
}

/// Two processes that share two cores want one each.
void Pin(int id) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (seen++ == id) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof(one), &one);
}

void Verify(Rank& r, std::size_t n, const char* what, bool foreign, bool in_place,
            const std::function<void()>& call) {
  for (std::size_t i = 0; i < n; ++i) {
    (foreign ? r.mine : r.slots[r.id])[i] = Given(r.id, static_cast<std::int64_t>(i));
  }
  r.Barrier();
  call();
  const float* result = foreign ? r.mine : in_place ? r.slots[r.id] : r.out;
  for (std::size_t i = 0; i < n; ++i) {
    const float sum = GivenSum(2, static_cast<std::int64_t>(i));
    if (result[i] != sum) FailWrong(what, r.id, static_cast<std::int64_t>(i), result[i], sum);
  }
  r.Barrier();  // the peer has read the slot
  std::memset(r.mine, 0, n * 4);
  std::memset(r.slots[r.id], 0, n * 4);
  r.Barrier();
}

int Main(int argc, char** argv) {
  RankTimerOptions options(argc, argv);
  auto* shared = static_cast<Shared*>(MapShared(sizeof(Shared)));
  float* slots[2] = {static_cast<float*>(MapShared(kMost)), static_cast<float*>(MapShared(kMost))};
  const pid_t child = fork();
  const int id = child == 0 ? 1 : 0;
  Pin(id);
  Rank r{id,
         shared,
         {slots[0], slots[1]},
         static_cast<float*>(std::aligned_alloc(4096, kMost)),
         static_cast<float*>(std::aligned_alloc(4096, kMost))};
  std::memset(r.mine, 0, kMost);
  std::memset(r.out, 0, kMost);
  RankTimer timer(
      options, id == 0, [&] { r.Barrier(); },
      [&](double x) {
        shared->values[id] = x;
        r.Barrier();
        x = std::max(shared->values[0], shared->values[1]);
        r.Barrier();
        return x;
      });
  for (const std::int64_t bytes : timer.options().sizes) {
    if (bytes > static_cast<std::int64_t>(kMost)) continue;
    const auto n = static_cast<std::size_t>(bytes) / 4;
    const auto zero_copy = [&] { ZeroCopy(r, n); };
    const auto in_place = [&] { InPlace(r, n); };
    const auto staged = [&] { Staged(r, n); };
    const auto chunked = [&](std::size_t kib) {
      return [&r, n, kib] { Chunked(r, n, kib * 256); };
    };
    Verify(r, n, "zero-copy floor", false, false, zero_copy);
    Verify(r, n, "in-place floor", false, true, in_place);
    Verify(r, n, "staged floor", true, true, staged);
    Verify(r, n, "chunked floor", true, true, chunked(16));
    timer.Time("all_reduce", bytes, "arena", zero_copy);
    timer.Time("all_reduce_in_place", bytes, "arena", in_place);
    timer.Alternate({{"all_reduce", staged},
                     {"all_reduce", chunked(16)},
                     {"all_reduce", chunked(64)},
                     {"all_reduce", chunked(256)}},
                    bytes, "foreign");
  }
  if (child != 0) {
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 1;
  }
  return 0;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }
