// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_BUDGET_H_
#define AIT_TOPOLOGY_BUDGET_H_

// What this process may use of the machine: CPUs, memory and resource limits, each with the file
// that says so.
//
// Looks at the affinity of the process, at its cgroups (version 1, version 2, or both at once) and
// all their parents as far as they can be seen, and at its resource limits. No value means that
// nothing limits.
//
//   AIT_ASSIGN_OR_RETURN(Budget budget, ReadBudget());
//   pool.Start(budget.cpu_count());                     // not the machine's count
//   if (budget.memory_limit) Print(budget.memory_limit->value, budget.memory_limit->source);
//
// The affinity is that of the process's main thread, so that worker threads which bind themselves
// do not shrink the budget. Read it at start, before anything binds the main thread.

#include <cstdint>
#include <optional>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/topology/id_set.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

/// Soft resource limits (`ulimit -S`); nullopt is unlimited, or unknown if /proc/self/limits is not
/// there.
struct ResourceLimits {
  std::optional<Bytes> locked_memory;      // RLIMIT_MEMLOCK: pages that may be locked
  std::optional<Bytes> address_space;      // RLIMIT_AS: all mappings together
  std::optional<Bytes> file_size;          // RLIMIT_FSIZE: also of files in memory
  std::optional<std::int64_t> open_files;  // RLIMIT_NOFILE: descriptors, a count
};

struct Budget {
  Sourced<CpuSet> affinity;               // CPUs the scheduler may run this process on; not empty
  std::optional<Sourced<CpuSet>> cpuset;  // CPUs of the cgroups, all levels taken together
  std::optional<Sourced<double>> cpu_quota;  // CPU time per time, such as 1.5: least of the levels
  std::optional<Sourced<NodeSet>> memory_nodes;  // nodes whose memory may be used

  /// Hard limit of memory: least of the levels.
  std::optional<Sourced<Bytes>> memory_limit;
  /// What can still be allocated: least of the machine's available memory and, at each level of the
  /// memory cgroup, limit minus use, where file cache that can be dropped does not count as used.
  std::optional<Sourced<Bytes>> memory_available;
  /// Swap that can still be used: least of the machine's free swap and, at each level, what the
  /// cgroup leaves; 0 if there is none.
  std::optional<Sourced<Bytes>> swap_available;

  ResourceLimits limits;

  /// CPUs this process can run on: affinity and cpuset together.
  CpuSet usable_cpus() const;

  /// How many CPUs' worth of threads to start: the least of usable CPUs and quota rounded up; at
  /// least 1.
  int cpu_count() const;
};

/// Reads the budget of this process. What cannot be read does not limit.
/// **Errors.** NotFound: the affinity cannot be read, because /proc is not there.
StatusOr<Budget> ReadBudget(const SystemRoots& roots = {});

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_BUDGET_H_
