// SPDX-License-Identifier: Apache-2.0
// bench_memory: the heap of ait beside malloc, and what reuse is worth.
//
//   pair/SIZE/malloc       allocate and free, untouched
//   use/SIZE/malloc        allocate, write every byte, free; the limit is writing a block in use
//   touch/64MiB/fresh      writing a block that was freed before, beside one fresh from the system
//   arena/SIZE/malloc      allocate and free in a shared arena that is half full
//   KERNEL/Nt/floor        BandwidthProbe beside loops written by hand, on N threads: GB/s
//
// Both sides of a row take turns in one process; the values are medians of the thread's CPU time,
// in which the system's work on fresh pages counts and other programs do not. Of a bandwidth the
// best counts, of all the ways of the floor the best one, over the same arrays; mib=512 sets their
// size.
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ait/memory/bandwidth.h"
#include "ait/memory/heap.h"
#include "ait/memory/shared_arena.h"
#include "memory/streaming_floor.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

/// Keeps the compiler from dropping a block that nobody reads.
void Use(void* block) { asm volatile("" : : "r"(block) : "memory"); }

double CpuMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double MillisecondsOf(const std::function<void()>& work, int repetitions) {
  const double begin = CpuMilliseconds();
  for (int i = 0; i < repetitions; ++i) work();
  return (CpuMilliseconds() - begin) / repetitions;
}

struct Size {
  const char* name;
  std::size_t bytes;
  int pairs;  // repetitions of the cheap measurement
  int uses;   // of the one that writes
};
constexpr Size kSizes[] = {
    {"64KiB", std::size_t{64} << 10, 20'000, 2'000},
    {"1MiB", std::size_t{1} << 20, 20'000, 200},
    {"64MiB", std::size_t{64} << 20, 1'000, 3},
};
constexpr int kRounds = 11;

/// Medians of several pieces of work that take turns.
std::vector<double> TakeTurns(const std::vector<std::function<void()>>& works, int repetitions) {
  std::vector<std::vector<double>> times(works.size());
  for (const auto& work : works) work();  // warm
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      times[i].push_back(MillisecondsOf(works[i], repetitions));
    }
  }
  std::vector<double> medians;
  for (const auto& list : times) medians.push_back(Median(list));
  return medians;
}

void Pass(MemoryResource& memory, std::size_t bytes, bool write) {
  void* const block = memory.Allocate(bytes).value();
  if (write) std::memset(block, 1, bytes);
  Use(block);
  memory.Deallocate(block, bytes);
}

void PassMalloc(std::size_t bytes, bool write) {
  void* const block = std::malloc(bytes);
  if (write) std::memset(block, 1, bytes);
  Use(block);
  std::free(block);
}

void MeasureHeap(Report& report) {
  const auto heap = HeapResource::Create();
  for (const Size& size : kSizes) {
    const auto pair =
        TakeTurns({[&] { Pass(*heap, size.bytes, false); }, [&] { PassMalloc(size.bytes, false); }},
                  size.pairs);
    report.AddTime(std::string("pair/") + size.name + "/malloc",
                   {.ms = pair[0], .baseline = "malloc", .baseline_ms = pair[1]});
  }
  for (const Size& size : kSizes) {
    void* const held = heap->Allocate(size.bytes).value();
    const auto use =
        TakeTurns({[&] { Pass(*heap, size.bytes, true); }, [&] { PassMalloc(size.bytes, true); },
                   [&] {
                     std::memset(held, 1, size.bytes);
                     Use(held);
                   }},
                  size.uses);
    report.AddTime(std::string("use/") + size.name + "/malloc",
                   {.ms = use[0], .baseline = "malloc", .baseline_ms = use[1], .limit_ms = use[2]});
    heap->Deallocate(held, size.bytes);
  }
}

void MeasureReuse(Report& report) {
  const std::size_t bytes = std::size_t{64} << 20;
  const auto keeps = HeapResource::Create();
  const auto returns =
      HeapResource::Create({.max_cached = Bytes(0), .huge_pages = HugePages::kNever});
  const auto times =
      TakeTurns({[&] { Pass(*keeps, bytes, true); }, [&] { Pass(*returns, bytes, true); }}, 2);
  report.AddTime("touch/64MiB/fresh",
                 {.ms = times[0], .baseline = "fresh pages", .baseline_ms = times[1]});
}

int MeasureArena(Report& report) {
  const auto arena = SharedArena::Create({.capacity = MiB(160)});
  if (!arena.ok()) {
    std::fprintf(stderr, "%s\n", arena.status().ToString().c_str());
    return 1;
  }
  std::vector<void*> held;
  for (int i = 0; i < 64; ++i) held.push_back((*arena)->Allocate(std::size_t{1} << 20).value());
  for (const Size& size : kSizes) {
    const auto pair = TakeTurns(
        {[&] { Pass(**arena, size.bytes, false); }, [&] { PassMalloc(size.bytes, false); }},
        size.pairs);
    report.AddTime(std::string("arena/") + size.name + "/malloc",
                   {.ms = pair[0], .baseline = "malloc", .baseline_ms = pair[1]});
  }
  for (void* block : held) (*arena)->Deallocate(block, std::size_t{1} << 20);
  return 0;
}

/// Alternates between the probe and every way of the floor.
int MeasureBandwidth(Report& report, BandwidthKernel kernel, int threads) {
  const auto probe =
      BandwidthProbe::Create({.array_bytes = MiB(std::atoi(report.Setting("mib", "512").c_str())),
                              .threads = std::vector<CpuSet>(static_cast<std::size_t>(threads)),
                              .repetitions = 1});
  if (!probe.ok()) {
    std::fprintf(stderr, "%s\n", probe.status().ToString().c_str());
    return 1;
  }
  float* const a = const_cast<float*>((*probe)->array(0).data());
  const float *const b = (*probe)->array(1).data(), *const c = (*probe)->array(2).data();
  const std::size_t count = (*probe)->array(0).size();
  const bool copies = kernel == BandwidthKernel::kCopy;
  const double bytes = static_cast<double>(count * sizeof(float)) * (copies ? 2 : 3);
  const std::vector<FloorKernel> ways = copies ? FloorCopies() : FloorTriads();
  double ours = 0, floor = 0;
  const char* way_of_floor = "";
  for (int round = 0; round < kRounds; ++round) {
    ours = std::max(ours, (*probe)->Measure(kernel).best);
    for (const FloorKernel& way : ways) {
      const double rate = bytes / SecondsOf(way, threads, a, b, c, count);
      if (rate > floor) way_of_floor = way.name;
      floor = std::max(floor, rate);
    }
  }
  report.AddRate(std::string(Name(kernel)) + "/" + std::to_string(threads) + "t/floor",
                 {.value = ours / 1e9,
                  .unit = "GB/s",
                  .baseline = std::string("by hand, ") + way_of_floor,
                  .baseline_value = floor / 1e9});
  return 0;
}

int Run(int argc, char** argv) {
  Report report(argc, argv);
  for (const int threads : {1, 2}) {
    for (const BandwidthKernel kernel : {BandwidthKernel::kCopy, BandwidthKernel::kTriad}) {
      if (const int code = MeasureBandwidth(report, kernel, threads); code != 0) return code;
    }
  }
  MeasureHeap(report);
  MeasureReuse(report);
  if (const int code = MeasureArena(report); code != 0) return code;
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Run(argc, argv); }
