// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_COMM_BENCH_TABLE_H_
#define AIT_CLI_COMM_BENCH_TABLE_H_

// How `ait bench comm` shows what it measured: the columns of nccl-tests, so that scripts made for those
// read it, with percentiles behind them; and JSON.

#include <string>
#include <vector>

#include "cli/comm_bench.h"

namespace ait::cli {

struct CommBenchRun {
  std::string transport;
  std::string memory;  // "arena" or "heap"
  int ranks = 1;
  bool signatures = true;
  CommBenchOptions options;
};

/// Lines that begin with "#": what is measured, and the names of the columns.
std::string CommBenchHeader(const CommBenchRun& run);

/// One line. "N/A" where the operation has no such call, or was not checked.
std::string CommBenchLine(const CommBenchRow& row);

/// The last lines: wrong elements over all, and the mean bus bandwidth, as nccl-tests counts it.
std::string CommBenchFooter(const std::vector<CommBenchRow>& rows);

/// Wrong elements of all rows.
std::int64_t CountWrong(const std::vector<CommBenchRow>& rows);

/// One object: the run, and "rows".
std::string CommBenchJson(const CommBenchRun& run, const std::vector<CommBenchRow>& rows);

}  // namespace ait::cli

#endif  // AIT_CLI_COMM_BENCH_TABLE_H_
