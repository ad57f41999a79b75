// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_MACHINE_H_
#define AIT_TOPOLOGY_MACHINE_H_

// The machine as the kernel describes it: CPUs, cores, last-level caches, NUMA nodes, memory.
//
// Plain structs, filled once; what a program may *use* of the machine is in "budget.h". Unknown
// stays unknown: 0 or nullopt, never a guess, and `notes` says what could not be read.
//
//   AIT_ASSIGN_OR_RETURN(Machine machine, ReadMachine());
//   for (const NumaNode& node : machine.nodes) Print(node.id, node.cpus.ToString());
//
// Nodes may have gaps in their numbers, no CPUs (memory on CXL, or of a GPU) or no memory.

#include <optional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/topology/id_set.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

/// One hardware thread that is online.
struct Cpu {
  int id = 0;                  // as the kernel counts; may have gaps
  int core = 0;                // < machine.cores.size(); threads of one core share it
  int cache_group = 0;         // < machine.cache_groups.size()
  std::optional<int> node;     // id of a NUMA node, not an index; nullopt if unknown
  std::optional<int> package;  // socket; nullopt if unknown
};

/// CPUs that share a last-level cache. CPUs whose caches are unknown form one group per node.
struct CacheGroup {
  CpuSet cpus;    // not empty
  int level = 0;  // such as 3; 0 if unknown
  Bytes size{0};  // 0 if unknown
};

/// A NUMA node that is online.
struct NumaNode {
  int id = 0;                  // as the kernel counts; may have gaps
  CpuSet cpus;                 // online ones; empty for a node of memory alone
  Bytes memory{0};             // of the node; 0 for a node of CPUs alone, or if unknown
  std::vector<int> distances;  // to nodes[i], 10 is local; empty if unknown, else nodes.size()
};

struct Machine {
  CpuSet online;                         // not empty
  std::vector<Cpu> cpus;                 // ascending id; exactly those of `online`
  std::vector<CpuSet> cores;             // threads of each core, ordered by first thread
  std::vector<CacheGroup> cache_groups;  // ordered by first CPU; every CPU is in exactly one
  std::vector<NumaNode> nodes;           // ascending id, at least one
  Bytes memory{0};                       // of the machine; 0 if unknown
  std::vector<std::string> notes;        // what could not be read and what was assumed instead

  /// The CPU or node of that id, or nullptr. The pointer lives as long as this machine is
  /// unchanged.
  const Cpu* FindCpu(int id) const;
  const NumaNode* FindNode(int id) const;
};

/// Reads the machine. Works without /sys (one node, one core per CPU, as `notes` says).
/// **Errors.** NotFound: neither /sys nor /proc names a CPU.
/// **Cost.** A few files per CPU, about 50 µs each: read once and keep.
StatusOr<Machine> ReadMachine(const SystemRoots& roots = {});

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_MACHINE_H_
