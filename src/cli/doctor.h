// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_DOCTOR_H_
#define AIT_CLI_DOCTOR_H_

namespace ait::cli {

/// `ait doctor net`: what is wrong with the network of a run before it starts. argv[0] is "doctor".
/// Returns the exit code.
int RunDoctor(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_DOCTOR_H_
