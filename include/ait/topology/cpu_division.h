// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_CPU_DIVISION_H_
#define AIT_TOPOLOGY_CPU_DIVISION_H_

// Divides the CPUs that this process may use among the ranks of a host.
//
// Pure arithmetic on what "machine.h" and "budget.h" read; nothing is bound. Every process that
// sees the same machine and budget computes the same division.
//
//   AIT_ASSIGN_OR_RETURN(Machine machine, ReadMachine());
//   AIT_ASSIGN_OR_RETURN(Budget budget, ReadBudget());
//   AIT_ASSIGN_OR_RETURN(CpuDivision division, DivideCpus(machine, budget, 4));
//   const RankCpus& mine = division.ranks[local_rank];
//   AIT_RETURN_IF_ERROR(BindThisThread(mine.cpus));      // then OMP_NUM_THREADS = mine.threads
//
// How it divides:
// - The unit is a core with all its hardware threads; cores in order of node, cache, number.
// - Ranks get equally many cores, give or take one, and the same number of threads: one per core,
//   since two threads of a core share its arithmetic, and no more in all than `budget.cpu_count()`.
// - Nodes, and last-level caches in them, are kept whole where that costs no rank a core.
// - More ranks than cores: the unit is the hardware thread, and ranks share cores.
// - More ranks than hardware threads: every rank gets all of them, and one thread; the scheduler
//   shares them out better than a fixed choice would.

#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/topology/budget.h"
#include "ait/topology/id_set.h"
#include "ait/topology/machine.h"

namespace ait::inline v0 {

/// What ranks of a host have in common.
enum class CpuSharing {
  kNothing,  // each rank has cores of its own
  kCores,    // hardware threads of its own
  kCpus,     // more ranks than hardware threads
};

/// "nothing", "cores" or "cpus".
std::string_view Name(CpuSharing sharing);

struct RankCpus {
  CpuSet cpus;      // not empty
  int threads = 1;  // to compute with; at least 1, at most cpus.size(), the same for all ranks
  NodeSet nodes;    // NUMA nodes of `cpus`; empty if unknown
};

struct CpuDivision {
  std::vector<RankCpus> ranks;  // by local rank
  CpuSharing sharing = CpuSharing::kNothing;
};

/// Divides the usable CPUs among `local_world_size` ranks.
/// **Errors.** InvalidArgument: `local_world_size` < 1. FailedPrecondition: no CPU is both online
/// and in the budget.
StatusOr<CpuDivision> DivideCpus(const Machine& machine, const Budget& budget,
                                 int local_world_size);

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_CPU_DIVISION_H_
