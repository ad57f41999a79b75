// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_MEMORY_POLICY_H_
#define AIT_TOPOLOGY_MEMORY_POLICY_H_

// From which NUMA node a thread takes the pages that it touches first.
//
// A preference, never a demand: when the node is full, pages come from the nearest one that is not.
// Threads and programs started later inherit it; those that run already do not. Memory that was
// placed by its address ("ait/memory/numa.h") stays where it was told to be. Containers may forbid
// the call; then a thread that is bound to the CPUs of a node still gets that node's memory.
//
//   if (!PreferMemoryOfNode(1).ok()) …           // bound threads and first touch remain

#include <optional>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// Lets the calling thread take new pages from `node` as long as it has some; reads it back.
/// **Errors.** InvalidArgument: no such node, or it has no memory, or the cpuset forbids it.
/// PermissionDenied: the call is forbidden, as in Docker without CAP_SYS_NICE. Unimplemented: the
/// kernel knows no NUMA.
Status PreferMemoryOfNode(int node);

/// Back to the system's way: pages come from the node of the CPU that touches them first.
Status PreferLocalMemory();

/// What `PreferMemoryOfNode` set, here or in a parent; nullopt: none, or a policy of another kind.
StatusOr<std::optional<int>> PreferredMemoryNode();

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_MEMORY_POLICY_H_
