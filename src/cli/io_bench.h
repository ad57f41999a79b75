// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_IO_BENCH_H_
#define AIT_CLI_IO_BENCH_H_

namespace ait::cli {

/// `ait bench io PATH`: rates of reading, by pattern, engine, block and depth. argv[0] is "bench".
/// Returns the exit code.
int RunIoBench(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_IO_BENCH_H_
