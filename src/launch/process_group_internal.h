// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_PROCESS_GROUP_INTERNAL_H_
#define AIT_LAUNCH_PROCESS_GROUP_INTERNAL_H_

#include <sys/types.h>

namespace ait::inline v0::internal {

/// True if a process of the group is alive; one that has ended and was not yet waited for is not.
/// Waits for those that are children of this process.
bool GroupIsAlive(pid_t group);

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_PROCESS_GROUP_INTERNAL_H_
