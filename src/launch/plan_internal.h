// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_PLAN_INTERNAL_H_
#define AIT_LAUNCH_PLAN_INTERNAL_H_

// What is decided before the first process starts.

#include <string>
#include <vector>

#include "ait/launch/launcher.h"
#include "launch/fd_internal.h"

namespace ait::inline v0::internal {

/// Checks the ranges of the options.
Status Check(const LaunchOptions& options);

/// Path of the program that the command names.
StatusOr<std::string> FindProgram(const std::string& name);

/// CPUs and threads of each rank. **Errors.** InvalidArgument: OMP_NUM_THREADS.
StatusOr<std::vector<RankPlan>> DivideAmongRanks(const LaunchOptions& options);

/// A socket that listens, and its port.
struct Listener {
  FileDescriptor socket;
  int port = 0;
};
/// On the loopback interface if `address` says so, else on all interfaces.
StatusOr<Listener> ListenAt(const std::string& address);

/// The environment of one rank of this host: this process's without the variables of another launch, the
/// caller's additions, the variables of this launch.
std::vector<std::string> MakeEnvironment(const LaunchOptions& options, const LaunchPlan& plan,
                                         int local_rank);

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_PLAN_INTERNAL_H_
