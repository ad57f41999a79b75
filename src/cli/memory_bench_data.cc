// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_bench_data.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "ait/memory/numa.h"

namespace ait::cli {
namespace {

/// One CPU of each core among `cpus`.
std::vector<int> CoresIn(const Machine& machine, const CpuSet& cpus) {
  std::vector<int> first;
  for (const CpuSet& core : machine.cores) {
    if (const CpuSet usable = core & cpus; !usable.empty()) first.push_back(usable.front());
  }
  return first;
}

/// `count` threads, each on a core, in turn if there are fewer cores.
std::vector<CpuSet> ThreadsOn(const std::vector<int>& cores, int count) {
  std::vector<CpuSet> threads;
  for (int i = 0; i < count; ++i) {
    threads.push_back({cores[static_cast<std::size_t>(i) % cores.size()]});
  }
  return threads;
}

StatusOr<BandwidthRow> MeasureRow(const std::vector<int>& cores, int threads,
                                  const MemoryBenchOptions& options) {
  AIT_ASSIGN_OR_RETURN(const auto probe,
                       BandwidthProbe::Create({.array_bytes = options.array_bytes,
                                               .threads = ThreadsOn(cores, threads),
                                               .repetitions = options.repetitions,
                                               .max_level = options.simd}));
  return BandwidthRow{.threads = threads,
                      .read = probe->Measure(BandwidthKernel::kRead),
                      .copy = probe->Measure(BandwidthKernel::kCopy),
                      .triad = probe->Measure(BandwidthKernel::kTriad)};
}

StatusOr<MatrixCell> MeasureCell(int cpu_node, const std::vector<int>& cores, int memory_node,
                                 const MemoryBenchOptions& options) {
  const auto threads = static_cast<int>(cores.size());
  MatrixCell cell = {.cpu_node = cpu_node, .memory_node = memory_node, .threads = threads};
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<NumaResource> memory,
                       NumaResource::Create({.nodes = {memory_node}, .max_cached = Bytes(0)}));
  {
    AIT_ASSIGN_OR_RETURN(const auto probe,
                         BandwidthProbe::Create({.memory = memory,
                                                 .array_bytes = options.array_bytes,
                                                 .threads = ThreadsOn(cores, threads),
                                                 .repetitions = options.repetitions,
                                                 .max_level = options.simd}));
    cell.read = probe->Measure(BandwidthKernel::kRead).best;
    const PlacementReport report = memory->Verify();
    cell.placement = report.verdict;
    cell.reason = report.reason;
  }
  AIT_ASSIGN_OR_RETURN(cell.latency, MeasureLatency({.memory = memory,
                                                     .bytes = options.array_bytes,
                                                     .cpus = {cores.front()},
                                                     .repetitions = options.repetitions}));
  return cell;
}

}  // namespace

Bytes ChooseArrayBytes(const Machine& machine, const Budget& budget) {
  std::int64_t bytes = MiB(64).value();
  for (const CacheGroup& cache : machine.cache_groups) {
    bytes = std::max(bytes, 4 * cache.size.value());
  }
  bytes = std::min(bytes, MiB(512).value());
  if (budget.memory_available) bytes = std::min(bytes, budget.memory_available->value.value() / 16);
  return Bytes(std::max(bytes, MiB(1).value()));
}

StatusOr<MemoryBenchResult> MeasureMemory(const Machine& machine, const Budget& budget,
                                          const MemoryBenchOptions& options,
                                          const std::function<void(const std::string&)>& show) {
  const CpuSet usable = budget.usable_cpus() & machine.online;
  const std::vector<int> cores = CoresIn(machine, usable);
  if (cores.empty()) return FailedPreconditionError("no CPU to measure on");
  MemoryBenchResult result;
  show(MemoryBenchHeader(options));
  for (const int threads : options.threads) {
    AIT_ASSIGN_OR_RETURN(const BandwidthRow row, MeasureRow(cores, threads, options));
    show(MemoryBenchLine(row));
    result.rows.push_back(row);
  }
  if (!options.matrix) return result;
  for (const NumaNode& from : machine.nodes) {
    const std::vector<int> on = CoresIn(machine, from.cpus & usable);
    if (on.empty()) continue;  // memory alone, or outside of the cpuset
    for (const NumaNode& to : machine.nodes) {
      const bool allowed = !budget.memory_nodes || budget.memory_nodes->value.contains(to.id);
      if (to.memory == Bytes(0) || !allowed) continue;
      AIT_ASSIGN_OR_RETURN(MatrixCell cell, MeasureCell(from.id, on, to.id, options));
      result.cells.push_back(std::move(cell));
    }
  }
  show(MemoryBenchMatrix(result.cells));
  return result;
}

}  // namespace ait::cli
