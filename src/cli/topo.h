// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_TOPO_H_
#define AIT_CLI_TOPO_H_

namespace ait::cli {

/// `ait topo`: prints the machine, what this process may use of it, and how ranks would share it.
/// argv[0] is "topo". Returns the exit code.
int RunTopo(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_TOPO_H_
