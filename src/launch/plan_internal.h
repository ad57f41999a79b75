// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_PLAN_INTERNAL_H_
#define AIT_LAUNCH_PLAN_INTERNAL_H_

// What is decided before the first process starts.

#include <optional>
#include <string>
#include <vector>

#include "ait/launch/launcher.h"
#include "launch/fd_internal.h"

namespace ait::inline v0::internal {

/// Checks the ranges of the options.
Status Check(const LaunchOptions& options);

/// Path of the program that the command names.
StatusOr<std::string> FindProgram(const std::string& name);

/// The node of each GPU, in the order in which CUDA numbers those that this process sees; without a
/// CUDA run time, in the order of the bus.
std::vector<std::optional<int>> NodesOfGpus();

/// Sets `ranks`, `first_touch` and `notes`. **Errors.** Those of LayOutRanks if the options ask for
/// more than equal shares; InvalidArgument: OMP_NUM_THREADS.
Status PlanRanks(const LaunchOptions& options, LaunchPlan& plan);

/// A socket that listens, and its port.
struct Listener {
  FileDescriptor socket;
  int port = 0;
};
/// On the loopback interface if `address` says so, else on all interfaces.
StatusOr<Listener> ListenAt(const std::string& address);

/// The environment of one rank of this host: this process's without the variables of another launch, the
/// caller's additions, the variables of this launch, and OMP_PLACES where its layout has CPUs that do
/// not compute.
std::vector<std::string> MakeEnvironment(const LaunchOptions& options, const LaunchPlan& plan,
                                         int local_rank);

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_PLAN_INTERNAL_H_
