// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/rank_layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "topology/cpu_units_internal.h"
#include "topology/rank_places_internal.h"

namespace ait::inline v0 {
namespace {

using internal::MakeUnits;
using internal::RankPlaces;
using internal::Unit;
using internal::Units;

Status Check(const RankLayoutOptions& options) {
  if (options.ranks < 1) {
    return InvalidArgumentError("cannot lay out ", options.ranks, " ranks; at least 1 is needed");
  }
  if (options.cores < 0 || options.service_cores < 0) {
    return InvalidArgumentError("cores of a rank are a count, or 0 to choose, not ",
                                std::min(options.cores, options.service_cores));
  }
  if (options.cores > 0 && options.service_cores >= options.cores) {
    return InvalidArgumentError(options.service_cores, " service cores leave none of the ",
                                options.cores, " cores of a rank to compute; give at most ",
                                options.cores - 1);
  }
  if (options.policy == LayoutPolicy::kGpu && options.gpu_nodes.empty()) {
    return InvalidArgumentError("no GPU to lay ranks out by; use the policy compact or scatter");
  }
  return OkStatus();
}

/// Says what the hardware threads of a rank do. `cpus` is set.
Status AssignThreads(const Machine& machine, int service_cores, RankLayout& rank) {
  const Units units = MakeUnits(machine, rank.cpus, /*whole_cores=*/true);
  const int computing = static_cast<int>(units.size()) - service_cores;
  if (computing < 1) {
    return FailedPreconditionError("a rank has ", units.size(), " cores (CPUs ",
                                   rank.cpus.ToString(), "), and ", service_cores,
                                   " service cores leave none to compute; use fewer ranks or "
                                   "service cores");
  }
  CpuSet others;  // hardware threads that do not compute, by core
  for (int i = 0; i < static_cast<int>(units.size()); ++i) {
    const CpuSet& core = units[static_cast<std::size_t>(i)].cpus;
    if (i < computing) rank.compute.Add(core.front());
    others = others | (i < computing ? core - CpuSet{core.front()} : core);
  }
  if (others.empty()) {  // one hardware thread a core: the scheduler fits them in
    rank.communication = rank.loaders = rank.cpus;
    return OkStatus();
  }
  // The last core's: of a service core, if there is one.
  const CpuSet last = others & units.back().cpus;
  const int communicates = last.empty() ? others[others.size() - 1] : last.front();
  rank.communication = {communicates};
  rank.loaders = others - rank.communication;
  if (rank.loaders.empty()) rank.loaders = rank.communication;
  return OkStatus();
}

/// The same number of threads for all, since all wait for the slowest.
void CountThreads(const Budget& budget, HostLayout& host) {
  const int share = budget.cpu_count() / static_cast<int>(host.ranks.size());
  int threads = host.sharing == CpuSharing::kCpus ? 1 : share;
  for (const RankLayout& rank : host.ranks) threads = std::min(threads, rank.compute.size());
  for (RankLayout& rank : host.ranks) {
    rank.threads = std::max(1, threads);
    const bool apart = rank.loaders != rank.cpus;
    const int room = apart ? std::min(rank.loaders.size(), share - rank.threads - 1) : 1;
    rank.loader_threads = std::max(1, room);
  }
}

/// Where the memory of a rank belongs that runs on `nodes`.
std::optional<int> MemoryNodeOf(const Machine& machine, const Budget& budget,
                                const NodeSet& nodes) {
  if (nodes.size() != 1) return std::nullopt;
  NodeSet with_memory;
  for (const NumaNode& node : machine.nodes) {
    const bool allowed = !budget.memory_nodes || budget.memory_nodes->value.contains(node.id);
    // Memory without CPUs is of another kind (CXL, a GPU's): nobody is sent there unasked.
    if (allowed && node.memory > Bytes(0) && !node.cpus.empty()) with_memory.Add(node.id);
  }
  return internal::NearestNode(machine, nodes.front(), with_memory);
}

/// CPUs, cores and caches that several ranks are on.
void NoteSharing(const Machine& machine, const std::vector<CpuSharing>& sharing, HostLayout& host) {
  std::map<int, IdSet> together;  // ranks that share CPUs, by the first of these
  bool shares_cores = false;
  for (std::size_t rank = 0; rank < host.ranks.size(); ++rank) {
    shares_cores = shares_cores || sharing[rank] == CpuSharing::kCores;
    if (sharing[rank] != CpuSharing::kCpus) continue;
    together[host.ranks[rank].cpus.front()].Add(static_cast<int>(rank));
  }
  for (const auto& [cpu, ranks] : together) {
    const bool is_all = ranks.size() == static_cast<int>(host.ranks.size());
    const CpuSet& cpus = host.ranks[static_cast<std::size_t>(ranks.front())].cpus;
    host.notes.push_back(
        StrCat("more ranks than CPUs: ", is_all ? "all" : StrCat("ranks ", ranks.ToString()),
               " share ", cpus.ToString()));
    if (is_all) return;
  }
  if (shares_cores) host.notes.push_back("more ranks than cores: ranks share cores");
  std::map<int, IdSet> ranks_of;  // by cache
  for (std::size_t rank = 0; rank < host.ranks.size(); ++rank) {
    if (sharing[rank] == CpuSharing::kCpus) continue;  // told already
    for (int cpu : host.ranks[rank].cpus) {
      ranks_of[machine.FindCpu(cpu)->cache_group].Add(static_cast<int>(rank));
    }
    if (host.ranks[rank].nodes.size() > 1) {
      host.notes.push_back(StrCat("rank ", rank, " has cores of nodes ",
                                  host.ranks[rank].nodes.ToString(),
                                  ": its memory lies where its threads touch it first"));
    }
  }
  int shared = 0;
  for (const auto& [cache, ranks] : ranks_of) shared += ranks.size() > 1 ? 1 : 0;
  if (shared > 0) {
    host.notes.push_back(StrCat("ranks share last-level caches: ", shared, " of ",
                                machine.cache_groups.size(), " serve more than one rank"));
  }
}

}  // namespace

std::string_view Name(LayoutPolicy policy) {
  switch (policy) {
    case LayoutPolicy::kCompact:
      return "compact";
    case LayoutPolicy::kScatter:
      return "scatter";
    case LayoutPolicy::kGpu:
      return "gpu";
  }
  return "unknown";
}

StatusOr<LayoutPolicy> ParseLayoutPolicy(std::string_view name) {
  for (const LayoutPolicy policy :
       {LayoutPolicy::kCompact, LayoutPolicy::kScatter, LayoutPolicy::kGpu}) {
    if (name == Name(policy)) return policy;
  }
  return InvalidArgumentError("there is no layout \"", name, "\"; give compact, scatter or gpu");
}

StatusOr<HostLayout> LayOutRanks(const Machine& machine, const Budget& budget,
                                 const RankLayoutOptions& options) {
  AIT_RETURN_IF_ERROR(Check(options));
  const CpuSet usable = budget.usable_cpus() & machine.online;
  if (usable.empty()) {  // the error of the division names both sets
    return DivideCpus(machine, budget, options.ranks).status();
  }
  AIT_ASSIGN_OR_RETURN(RankPlaces places, internal::PlaceRanks(machine, usable, options));
  HostLayout host = {.sharing = *std::ranges::max_element(places.sharing),
                     .notes = std::move(places.notes)};
  for (std::size_t i = 0; i < places.cpus.size(); ++i) {
    RankLayout rank = {.cpus = std::move(places.cpus[i])};
    rank.nodes = internal::NodesOf(machine, rank.cpus);
    rank.memory_node = MemoryNodeOf(machine, budget, rank.nodes);
    if (i < places.gpus.size()) rank.gpu = places.gpus[i];
    if (places.sharing[i] == CpuSharing::kCpus) {
      rank.compute = rank.communication = rank.loaders = rank.cpus;
    } else {
      AIT_RETURN_IF_ERROR(AssignThreads(machine, options.service_cores, rank));
    }
    host.ranks.push_back(std::move(rank));
  }
  CountThreads(budget, host);
  NoteSharing(machine, places.sharing, host);
  return host;
}

}  // namespace ait::inline v0
