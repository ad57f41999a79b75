// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_LAUNCH_CHOICE_H_
#define AIT_COMM_LAUNCH_CHOICE_H_

// Which launcher's variables hold, and which variables those are.
//
// The innermost launcher wins: what starts a process inside another's job sets its variables last.

#include <string>
#include <vector>

#include "ait/comm/world.h"
#include "comm/launch_reader.h"

namespace ait::inline v0::internal {

struct LaunchChoice {
  LaunchedBy launched_by = LaunchedBy::kNobody;
  std::string because;    // the variable that says so
  std::string overruled;  // variables of launchers that do not hold
};

/// Notes a problem if AIT_LAUNCHER is unknown, or if two launchers that both mean this very process
/// contradict each other.
LaunchChoice ChooseLauncher(const Env& env, LaunchReader& reader);

/// The variables of a place in the run, as one launcher calls them.
struct PlaceVariables {
  Variable rank, size, local_rank, local_size;
};
PlaceVariables PlaceOf(LaunchedBy launched_by, const Env& env);

/// Those of all launchers, for one quantity.
std::vector<Variable> AllOf(Variable PlaceVariables::* quantity, const Env& env);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_LAUNCH_CHOICE_H_
