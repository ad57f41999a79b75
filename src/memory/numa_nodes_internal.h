// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_NUMA_NODES_INTERNAL_H_
#define AIT_MEMORY_NUMA_NODES_INTERNAL_H_

// The nodes that memory can be put on, and how much of it they have.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/memory/numa.h"
#include "ait/topology/id_set.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0::internal {

/// Nodes as /sys shows them, and the limits of this process. Ids may have gaps.
struct NumaNodes {
  bool is_known = false;    // else nothing below holds
  std::string why_unknown;  // names the file
  NodeSet online;
  NodeSet with_memory;         // part of `online`
  NodeSet with_cpus;           // part of `online`
  NodeSet allowed;             // by the cpuset; part of `with_memory`
  std::string allowed_by;      // where that is said; empty if nothing limits
  std::map<int, CpuSet> cpus;  // online node to its CPUs that this process may bind to
  /// Online node to allowed ones, the nearest first; those without CPUs only if all are.
  std::map<int, std::vector<int>> nearest;

  /// The node itself if it has memory that is allowed, else the nearest of `nearest`.
  std::optional<int> NearestWithMemory(int node) const;
};

StatusOr<NumaNodes> ReadNumaNodes(const SystemRoots& roots);

/// The nodes that `options` mean for a thread on node `current` (-1: unknown), or what is wrong with
/// the options. Empty if nodes are unknown and none is named.
StatusOr<NodeSet> ResolveNodes(const NumaNodes& nodes, const NumaOptions& options, int current);

/// What the kernel can hand out of a node under strict binding: free pages and file cache, without
/// what it keeps for itself. nullopt if it cannot be read.
std::optional<Bytes> AvailableOnNode(const SystemRoots& roots, int node);

/// Reserved huge pages of 2 MiB of a node.
struct HugePagePool {
  std::int64_t total = 0;
  std::int64_t free = 0;
  std::string path;  // that sets `total`
};
/// nullopt if the kernel has none.
std::optional<HugePagePool> ReadHugePagePool(const SystemRoots& roots, int node);

/// Refuses more than the memory that is available to this process, which would end in the kernel's
/// choice of whom to kill.
Status CheckRoom(const SystemRoots& roots, std::size_t bytes);

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_NUMA_NODES_INTERNAL_H_
