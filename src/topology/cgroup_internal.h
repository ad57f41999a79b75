// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_CGROUP_INTERNAL_H_
#define AIT_TOPOLOGY_CGROUP_INTERNAL_H_

// Where the cgroups of this process are in the file system, from its own up to the outermost that
// can be seen.

#include <string>
#include <string_view>
#include <vector>

#include "ait/topology/system_roots.h"

namespace ait::inline v0::internal {

/// Directories of the cgroup hierarchies that may hold files of `controller` ("cpu", "cpuset",
/// "memory"): of version 1, then of version 2, each from the process's own cgroup upwards.
/// Directories that do not exist are left out.
std::vector<std::string> CgroupDirectories(const SystemRoots& roots, std::string_view controller);

}  // namespace ait::inline v0::internal

#endif  // AIT_TOPOLOGY_CGROUP_INTERNAL_H_
