// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_COMM_BENCH_H_
#define AIT_CLI_COMM_BENCH_H_

// The measurements of `ait bench comm`: what nccl-tests calls a performance test, for any
// communicator. The table and the JSON are in comm_bench_table.h.
//
// Sizes are of the whole buffer (all parts), algbw is size / time and busbw is algbw times the share
// of the size that has to cross a rank's link, so that it can be compared between rank counts and with
// the speed of a memory or a wire.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/comm/communicator.h"
#include "ait/comm/operation.h"

namespace ait::cli {

struct CommBenchOptions {
  std::vector<OperationKind> kinds;
  std::vector<DType> dtypes = {DType::kFloat32};
  std::vector<ReduceOp> reduce_ops = {ReduceOp::kSum};
  std::int64_t min_bytes = 4 << 10;
  std::int64_t max_bytes = 64 << 20;
  double factor = 4;
  int iterations = 20;
  int warmup = 5;
  bool check = true;
  int root = 0;
};

/// One way of calling.
struct CommBenchTime {
  double us = 0;                      // of a call: the mean over calls and ranks
  double algbw = 0, busbw = 0;        // GB/s, 10^9
  double p50 = 0, p99 = 0, max = 0;   // us of single calls, of the slowest rank
  std::optional<std::int64_t> wrong;  // elements, over all ranks; not there if it was not checked
};

struct CommBenchRow {
  OperationKind kind;
  DType dtype;
  std::optional<ReduceOp> reduce;
  std::int64_t bytes = 0;  // whole
  std::int64_t count = 0;  // elements of what one rank gives or gets
  std::optional<int> root;
  std::optional<CommBenchTime> out_of_place, in_place;  // where the operation has such a call
};

/// busbw / algbw, as nccl-tests defines it.
double BusFactor(OperationKind kind, int ranks);

/// The name in tables and on the command line, that of nccl-tests: "all_reduce", "sendrecv".
std::string_view CommBenchName(OperationKind kind);

/// All that can be measured, in the order of the table.
const std::vector<OperationKind>& CommBenchKinds();

/// **Collective. Blocks.** Measures everything asked for. `on_row` is called on every rank, with the same row.
Status MeasureCollectives(Communicator& all, MemoryHandle memory, const CommBenchOptions& options,
                          const std::function<void(const CommBenchRow&)>& on_row);

}  // namespace ait::cli

#endif  // AIT_CLI_COMM_BENCH_H_
