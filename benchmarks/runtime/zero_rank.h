// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_RUNTIME_ZERO_RANK_H_
#define AIT_BENCHMARKS_RUNTIME_ZERO_RANK_H_

// What `bench zero` does as a rank of two, and its memory report over ranks that are threads.

#include <cstdint>
#include <string>
#include <vector>

#include "ait/parallel/data_parallel.h"
#include "gpt.h"

namespace ait::benchmarks {

/// "own-ddp", "zero1", …: in the order of the stages.
const std::vector<std::string>& StageNames();

/// The options of a stage for the GPT.
DataParallelOptions StageOptions(ZeroStage stage);

/// **Collective.** Prints, on rank 0, {variant: [ms]} of the stages, which alternate.
int RunStepRank(const std::string& configuration, int rounds, const std::vector<int>& stages);

/// **Collective.** Trains with one stage and prints, on every rank, what it took.
int RunMemoryRank(const std::string& configuration, int stage);

struct RankMemory {
  MemoryReport report;
  std::int64_t parameters = 0;  // elements
};

/// Memory() of each rank after a step, with threads as ranks.
std::vector<RankMemory> ReportsOf(const std::string& configuration,
                                  const DataParallelOptions& options, int ranks);

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_RUNTIME_ZERO_RANK_H_
