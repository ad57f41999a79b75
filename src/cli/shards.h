// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_SHARDS_H_
#define AIT_CLI_SHARDS_H_

// `ait pack files` and `ait convert`: any collection of samples into shards.

namespace ait::cli {

/// ait convert SOURCE --out DIR [OPTION...]
int RunConvert(int argc, char** argv);

/// ait pack files FOLDER --out DIR [OPTION...]; argv[1] is "files".
int RunPackFiles(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_SHARDS_H_
