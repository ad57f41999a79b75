// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_BENCH_H_
#define AIT_CLI_BENCH_H_

namespace ait::cli {

/// `ait bench comm` measures the collectives of a transport, `ait bench memory` the memory. argv[0] is
/// "bench". Returns the exit code.
int RunBench(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_BENCH_H_
