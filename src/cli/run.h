// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_RUN_H_
#define AIT_CLI_RUN_H_

namespace ait::cli {

/// `ait run`: starts a program as the ranks of one run. argv[0] is "run". Returns the exit code.
int RunRun(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_RUN_H_
