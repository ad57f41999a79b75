// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_STAGE_H_
#define AIT_CLI_STAGE_H_

namespace ait::cli {

/// `ait stage`: copies a data set to a local directory before a run. argv[0] is "stage". Returns
/// the exit code.
int RunStage(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_STAGE_H_
