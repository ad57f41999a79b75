// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_PROGRAM_H_
#define AIT_CLI_PROGRAM_H_

// What the subcommands of the `ait` program share.

#include <string_view>

#include "ait/base/status.h"

namespace ait::cli {

// Exit codes, those of env(1), timeout(1) and shells. A run has the code of its ranks otherwise.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kCannotLaunch = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

/// Prints "ait <subcommand>: <what>" and where help is; returns kWrongUsage.
int FailUsage(std::string_view subcommand, std::string_view what);

/// Prints "ait <subcommand>: <message>"; returns `code`.
int Fail(std::string_view subcommand, const Status& status, int code = kFailure);

}  // namespace ait::cli

#endif  // AIT_CLI_PROGRAM_H_
