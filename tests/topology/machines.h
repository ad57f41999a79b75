// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_TOPOLOGY_MACHINES_H_
#define AIT_TESTS_TOPOLOGY_MACHINES_H_

// Machines that are made up, without files.

#include <cstddef>

#include "ait/topology/budget.h"
#include "ait/topology/machine.h"

namespace ait::testing {

/// A machine of equal nodes, each with equal caches, cores and threads, in the numbering of most
/// servers: first threads of all cores, then second threads.
inline Machine MakeMachine(int nodes, int caches_per_node, int cores_per_cache,
                           int threads_per_core) {
  Machine machine;
  const int cores = nodes * caches_per_node * cores_per_cache;
  machine.online = CpuSet::Range(0, cores * threads_per_core - 1);
  machine.cores.resize(static_cast<std::size_t>(cores));
  machine.cache_groups.resize(static_cast<std::size_t>(nodes * caches_per_node));
  machine.nodes.resize(static_cast<std::size_t>(nodes));
  for (int id : machine.online) {
    const int core = id % cores;
    const int cache = core / cores_per_cache;
    const int node = cache / caches_per_node;
    machine.cpus.push_back({.id = id, .core = core, .cache_group = cache, .node = node});
    machine.cores[static_cast<std::size_t>(core)].Add(id);
    machine.cache_groups[static_cast<std::size_t>(cache)].cpus.Add(id);
    machine.nodes[static_cast<std::size_t>(node)].id = node;
    machine.nodes[static_cast<std::size_t>(node)].cpus.Add(id);
    machine.nodes[static_cast<std::size_t>(node)].memory = GiB(16);
  }
  return machine;
}

inline Budget MakeBudget(const CpuSet& cpus) { return {.affinity = {cpus, "test"}}; }

}  // namespace ait::testing

#endif  // AIT_TESTS_TOPOLOGY_MACHINES_H_
