// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_RANK_LAYOUT_H_
#define AIT_TOPOLOGY_RANK_LAYOUT_H_

// Which cores and which memory each rank of a host gets, and where in them its threads run: those
// that compute, the one that communicates, those that load data.
//
// Pure arithmetic on what "machine.h" and "budget.h" read: every process that sees the same machine
// computes the same layout. `ait run --bind` applies it; so does a rank by itself:
//
//   AIT_ASSIGN_OR_RETURN(HostLayout host, LayOutRanks(machine, budget, {.ranks = 4}));
//   const RankLayout& mine = host.ranks[local_rank];
//   AIT_ASSIGN_OR_RETURN(AppliedLayout applied, ApplyRankLayout(mine));   // CPUs, memory
//   omp_set_num_threads(mine.threads);
//   std::thread loader([&] { BindThisThread(mine.loaders).IgnoreError(); … });
//
// The unit is the last-level cache: ranks do not share one where there are enough of them. Shares
// are those of "cpu_division.h": equal in cores, whole nodes and caches where that costs no core.
// Inside a rank, one hardware thread of each core computes; the other ones load and communicate.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/topology/budget.h"
#include "ait/topology/cpu_division.h"
#include "ait/topology/id_set.h"
#include "ait/topology/machine.h"

namespace ait::inline v0 {

struct Env;

/// How ranks are spread over the machine.
enum class LayoutPolicy {
  kCompact,  // neighbours in rank are neighbours in the machine: cache by cache, node by node
  kScatter,  // neighbours in rank are on different nodes, then on different caches
  kGpu,      // each rank on the node of its GPU: rank r has GPU r modulo their number
};

/// "compact", "scatter" or "gpu", and back. **Errors.** InvalidArgument names the three.
std::string_view Name(LayoutPolicy policy);
StatusOr<LayoutPolicy> ParseLayoutPolicy(std::string_view name);

struct RankLayoutOptions {
  int ranks = 1;  ///< of this host
  LayoutPolicy policy = LayoutPolicy::kCompact;

  /// Cores of each rank; 0: equal shares of all that may be used.
  int cores = 0;
  /// Of those, cores that do not compute but communicate and load. For machines with one hardware
  /// thread a core, where these threads otherwise run among those that compute.
  int service_cores = 0;

  /// For kGpu: the node of each GPU in the order in which the ranks see them ("devices.h" finds it
  /// by PCI address); nullopt if unknown.
  std::vector<std::optional<int>> gpu_nodes = {};
};

/// What one rank gets. All sets are in `cpus`.
struct RankLayout {
  CpuSet cpus;           // of its process; not empty
  CpuSet compute;        // one hardware thread of each core: for OpenMP and libtorch
  CpuSet communication;  // for the thread that communicates
  CpuSet loaders;        // for threads that read and prepare data
  int threads = 1;       // to compute with: at most compute.size(), within the CPU quota, the same
                         // for all ranks
  int loader_threads = 1;  // so many find room beside them in the quota; at least 1

  NodeSet nodes;                   // of `cpus`; empty if unknown
  std::optional<int> memory_node;  // where its memory belongs: the node of its CPUs, or if that
                                   // has no memory the nearest that has; nullopt: several, unknown
  std::optional<int> gpu;          // kGpu: index of its GPU

  friend bool operator==(const RankLayout&, const RankLayout&) = default;
};

struct HostLayout {
  std::vector<RankLayout> ranks;              // by local rank
  CpuSharing sharing = CpuSharing::kNothing;  // of the ranks that share most
  std::vector<std::string> notes;             // what is not as one would wish, for people
};

/// Lays out the ranks. **Errors.** InvalidArgument: a number below its least value; kGpu without a
/// GPU. FailedPrecondition: no usable CPU, or fewer cores than `ranks` times `cores`; the text says
/// how many there are.
StatusOr<HostLayout> LayOutRanks(const Machine& machine, const Budget& budget,
                                 const RankLayoutOptions& options);

/// What became of a layout.
struct AppliedLayout {
  bool memory_preferred = false;  // memory comes from `memory_node` as long as it has some
  std::string memory;             // "preferred on node 1", or "first touch" and why
};

/// Binds this thread, and so all that it starts later, to the CPUs of the layout and, where the
/// system allows, prefers the memory of its node; where not, memory still lies where this thread
/// touches it first. Call it first thing in `main`. **Errors.** Those of BindThisThread.
StatusOr<AppliedLayout> ApplyRankLayout(const RankLayout& layout);

/// The layout as one line, "cpus=0-3;compute=0-1;…", the value of AIT_LAYOUT; and back.
/// **Errors.** InvalidArgument: unknown words, sets outside of `cpus`.
std::string ToText(const RankLayout& layout);
StatusOr<RankLayout> ParseRankLayout(std::string_view text);

/// The layout that `ait run` gave this rank in AIT_LAYOUT; nullopt if it gave none.
StatusOr<std::optional<RankLayout>> RankLayoutFromEnv(const Env& env);

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_RANK_LAYOUT_H_
