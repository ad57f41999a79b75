// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_MEMORY_BENCH_DATA_H_
#define AIT_CLI_MEMORY_BENCH_DATA_H_

// What `ait bench memory` measures, and how it shows it.

#include <functional>
#include <string>
#include <vector>

#include "ait/base/simd.h"
#include "ait/memory/bandwidth.h"
#include "ait/memory/placement.h"
#include "ait/topology/budget.h"
#include "ait/topology/machine.h"

namespace ait::cli {

struct MemoryBenchOptions {
  Bytes array_bytes{0};
  int repetitions = 7;
  SimdLevel simd = SimdLevel::kAvx512;
  std::vector<int> threads;  // one row each
  bool matrix = true;
};

/// On so many threads, each on a core of its own.
struct BandwidthRow {
  int threads = 1;
  BandwidthResult read, copy, triad;
};

/// Threads on the CPUs of one node, memory of another or the same.
struct MatrixCell {
  int cpu_node = 0;
  int memory_node = 0;
  int threads = 0;     // all cores of the node that may be used
  double read = 0;     // bytes a second
  double latency = 0;  // nanoseconds
  PlacementVerdict placement = PlacementVerdict::kUnverified;
  std::string reason;  // of a placement that is not verified
};

struct MemoryBenchResult {
  std::vector<BandwidthRow> rows;
  std::vector<MatrixCell> cells;  // by CPU node, then memory node
};

/// Size of an array: four times the largest last-level cache (McCalpin's rule for STREAM), from 64
/// to 512 MiB, and at most a sixteenth of the memory that is left.
Bytes ChooseArrayBytes(const Machine& machine, const Budget& budget);

/// `show` gets each line of the table when it is known. **Errors.** Those of BandwidthProbe.
StatusOr<MemoryBenchResult> MeasureMemory(const Machine& machine, const Budget& budget,
                                          const MemoryBenchOptions& options,
                                          const std::function<void(const std::string&)>& show);

std::string MemoryBenchHeader(const MemoryBenchOptions& options);
std::string MemoryBenchLine(const BandwidthRow& row);
std::string MemoryBenchMatrix(const std::vector<MatrixCell>& cells);
std::string MemoryBenchJson(const MemoryBenchOptions& options, const MemoryBenchResult& result);

}  // namespace ait::cli

#endif  // AIT_CLI_MEMORY_BENCH_DATA_H_
