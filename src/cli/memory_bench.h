// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_MEMORY_BENCH_H_
#define AIT_CLI_MEMORY_BENCH_H_

namespace ait::cli {

/// `ait bench memory`: bandwidth by threads, bandwidth and latency between nodes. argv[0] is "bench".
/// Returns the exit code.
int RunMemoryBench(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_MEMORY_BENCH_H_
