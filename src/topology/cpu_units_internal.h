// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_CPU_UNITS_INTERNAL_H_
#define AIT_TOPOLOGY_CPU_UNITS_INTERNAL_H_

// CPUs as the units that ranks get whole, in the order of the machine: node, cache, core.

#include <vector>

#include "ait/topology/id_set.h"
#include "ait/topology/machine.h"

namespace ait::inline v0::internal {

/// What a rank gets whole: a core, or one hardware thread.
struct Unit {
  CpuSet cpus;
  int node = 0;  // -1 if unknown
  int cache_group = 0;
};

using Units = std::vector<Unit>;

/// `usable` is a part of `machine.online`.
Units MakeUnits(const Machine& machine, const CpuSet& usable, bool whole_cores);

/// Neighbouring units with the same value of `key`, together.
std::vector<Units> GroupBy(const Units& units, int Unit::* key);

CpuSet CpusOf(const Units& units);

/// The nodes of CPUs, those that are known.
NodeSet NodesOf(const Machine& machine, const CpuSet& cpus);

}  // namespace ait::inline v0::internal

#endif  // AIT_TOPOLOGY_CPU_UNITS_INTERNAL_H_
