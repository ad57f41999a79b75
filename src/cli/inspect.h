// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_INSPECT_H_
#define AIT_CLI_INSPECT_H_

// `ait inspect`: what a file or directory of samples holds, and what is wrong with it.

namespace ait::cli {

/// ait inspect PATH [OPTION...]
int RunInspect(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_INSPECT_H_
