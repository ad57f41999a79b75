// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_PACK_H_
#define AIT_CLI_PACK_H_

namespace ait::cli {

/// `ait pack text`: turns text files into a packed corpus. argv[0] is "pack". Returns the exit
/// code.
int RunPack(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_PACK_H_
