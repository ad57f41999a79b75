// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_HANG_H_
#define AIT_CLI_HANG_H_

namespace ait::cli {

/// `ait hang DIR`: merges the records that the ranks of a run left into one verdict. argv[0] is
/// "hang". Returns the exit code: 0 nothing is wrong, 3 a cause was found, 1 no record can be read.
int RunHang(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_HANG_H_
