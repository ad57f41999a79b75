// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "topology/cpu_units_internal.h"
#include "topology/rank_places_internal.h"

namespace ait::inline v0::internal {
namespace {

StatusOr<CpuDivision> DivideEqually(const Machine& machine, CpuSet cpus, int ranks) {
  const Budget part = {.affinity = {std::move(cpus), "the layout"}};
  return DivideCpus(machine, part, ranks);
}

void Append(Units& units, const Units& more) {
  units.insert(units.end(), more.begin(), more.end());
}

Units FirstOf(Units units, std::size_t count) {
  units.resize(std::min(count, units.size()));
  return units;
}

/// Places of `cores` cores that share no last-level cache with each other, node by node: a cache,
/// or where it is too small several of one node.
std::vector<CpuSet> PlacesOfOwnCaches(const Units& units, std::size_t cores) {
  std::vector<CpuSet> places;
  for (const Units& node : GroupBy(units, &Unit::node)) {
    Units together;
    for (const Units& cache : GroupBy(node, &Unit::cache_group)) {
      if (cache.size() >= cores) {
        places.push_back(CpusOf(FirstOf(cache, cores)));
        continue;
      }
      Append(together, cache);
      if (together.size() < cores) continue;
      places.push_back(CpusOf(FirstOf(together, cores)));
      together.clear();
    }
  }
  return places;
}

/// `cores` of a rank's cores: from the cache where it has most of them, then the next.
CpuSet Trim(const Machine& machine, const CpuSet& cpus, std::size_t cores) {
  std::vector<Units> caches =
      GroupBy(MakeUnits(machine, cpus, /*whole_cores=*/true), &Unit::cache_group);
  std::stable_sort(caches.begin(), caches.end(),
                   [](const Units& a, const Units& b) { return a.size() > b.size(); });
  Units units;
  for (const Units& cache : caches) Append(units, cache);
  return CpusOf(FirstOf(std::move(units), cores));
}

/// The cores of the first nodes that hold `ranks` times `cores` without dividing a rank; all if no
/// number of nodes does.
CpuSet FewestNodes(const Units& units, std::size_t ranks, std::size_t cores) {
  CpuSet cpus;
  std::size_t room = 0;
  for (const Units& node : GroupBy(units, &Unit::node)) {
    cpus = cpus | CpusOf(node);
    room += node.size() / cores;
    if (room >= ranks) return cpus;
  }
  return cpus;
}

/// One of each list in turn, until all are empty.
std::vector<CpuSet> Deal(std::vector<std::vector<CpuSet>> lists) {
  std::vector<CpuSet> dealt;
  for (std::size_t turn = 0, before = 1; before != 0; ++turn) {
    before = dealt.size();
    for (const std::vector<CpuSet>& list : lists) {
      if (turn < list.size()) dealt.push_back(list[turn]);
    }
    before = dealt.size() - before;
  }
  return dealt;
}

/// Places in turn from each node, and within a node from each cache.
std::vector<CpuSet> Scatter(const Machine& machine, const std::vector<CpuSet>& places) {
  std::map<int, std::map<int, std::vector<CpuSet>>> by_node;
  for (const CpuSet& place : places) {
    const Cpu& first = *machine.FindCpu(place.front());
    by_node[first.node.value_or(-1)][first.cache_group].push_back(place);
  }
  std::vector<std::vector<CpuSet>> nodes;
  for (const auto& [node, by_cache] : by_node) {
    std::vector<std::vector<CpuSet>> caches;
    for (const auto& [cache, list] : by_cache) caches.push_back(list);
    nodes.push_back(Deal(std::move(caches)));
  }
  return Deal(std::move(nodes));
}

/// Ranks on `cpus`, compact or scattered.
StatusOr<RankPlaces> PlaceOn(const Machine& machine, const CpuSet& cpus, int ranks, int cores,
                             LayoutPolicy policy) {
  const bool scatters = policy == LayoutPolicy::kScatter;
  RankPlaces places;
  if (cores == 0) {
    AIT_ASSIGN_OR_RETURN(const CpuDivision division, DivideEqually(machine, cpus, ranks));
    for (const RankCpus& rank : division.ranks) places.cpus.push_back(rank.cpus);
    places.sharing.assign(places.cpus.size(), division.sharing);
    if (scatters) places.cpus = Scatter(machine, places.cpus);
    return places;
  }
  const Units units = MakeUnits(machine, cpus, /*whole_cores=*/true);
  const auto wanted = static_cast<std::size_t>(cores), count = static_cast<std::size_t>(ranks);
  if (units.size() / wanted < count) {
    return FailedPreconditionError(ranks, " ranks of ", cores, " cores each need ", count * wanted,
                                   " cores, but CPUs ", cpus.ToString(), " are ", units.size(),
                                   " cores; give each rank at most ", units.size() / count,
                                   ", or start at most ", units.size() / wanted, " ranks");
  }
  places.cpus = PlacesOfOwnCaches(units, wanted);
  if (places.cpus.size() < count) {  // caches are shared
    AIT_ASSIGN_OR_RETURN(
        const CpuDivision division,
        DivideEqually(machine, scatters ? cpus : FewestNodes(units, count, wanted), ranks));
    places.cpus.clear();
    for (const RankCpus& rank : division.ranks) {
      places.cpus.push_back(Trim(machine, rank.cpus, wanted));
    }
  }
  if (scatters) places.cpus = Scatter(machine, places.cpus);
  places.cpus.resize(count);
  places.sharing.assign(count, CpuSharing::kNothing);
  return places;
}

/// The CPUs of each node that may be used; CPUs of no known node under -1.
std::map<int, CpuSet> CpusByNode(const Machine& machine, const CpuSet& usable) {
  std::map<int, CpuSet> cpus;
  for (int id : usable) cpus[machine.FindCpu(id)->node.value_or(-1)].Add(id);
  return cpus;
}

/// The node on which each rank is to run, that of its GPU or the nearest with CPUs; nullopt for
/// ranks whose GPU is nowhere. `notes` tells of both.
std::vector<std::optional<int>> HomesOf(const Machine& machine, const RankLayoutOptions& options,
                                        const NodeSet& with_cpus, std::vector<std::string>& notes) {
  std::vector<std::optional<int>> homes;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const std::size_t gpu = static_cast<std::size_t>(rank) % options.gpu_nodes.size();
    const std::optional<int> node = options.gpu_nodes[gpu];
    homes.push_back(node ? NearestNode(machine, *node, with_cpus) : std::nullopt);
    if (static_cast<std::size_t>(rank) >= options.gpu_nodes.size()) continue;  // told already
    if (!node) {
      notes.push_back(StrCat("the system does not tell the node of GPU ", gpu));
    } else if (homes.back() != node) {
      notes.push_back(StrCat("node ", *node, " of GPU ", gpu, " has no CPU that may be used",
                             homes.back() ? StrCat("; the nearest is on node ", *homes.back())
                                          : ", and no distance to others is known"));
    }
  }
  return homes;
}

StatusOr<RankPlaces> PlaceByGpu(const Machine& machine, const CpuSet& usable,
                                const RankLayoutOptions& options) {
  const std::map<int, CpuSet> cpus_of = CpusByNode(machine, usable);
  std::map<int, std::size_t> cores_of;
  NodeSet with_cpus;
  for (const auto& [node, cpus] : cpus_of) {
    with_cpus.Add(node);  // leaves -1 out
    cores_of[node] = MakeUnits(machine, cpus, /*whole_cores=*/true).size();
  }
  RankPlaces places;
  std::vector<std::optional<int>> homes = HomesOf(machine, options, with_cpus, places.notes);
  std::map<int, std::vector<std::size_t>> ranks_of;
  for (std::size_t rank = 0; rank < homes.size(); ++rank) {
    if (homes[rank]) ranks_of[*homes[rank]].push_back(rank);
  }
  if (ranks_of.empty()) {  // no GPU is anywhere: the machine as a whole
    const std::vector<std::string> notes = std::move(places.notes);
    AIT_ASSIGN_OR_RETURN(
        places, PlaceOn(machine, usable, options.ranks, options.cores, LayoutPolicy::kCompact));
    places.notes = notes;
  } else {
    // The others go where most cores are left for each.
    for (std::size_t rank = 0; rank < homes.size(); ++rank) {
      if (homes[rank]) continue;
      const auto room = [&](int node) {
        return static_cast<double>(cores_of[node]) / static_cast<double>(ranks_of[node].size() + 1);
      };
      int best = cpus_of.begin()->first;
      for (const auto& [node, cpus] : cpus_of) {
        if (room(node) > room(best)) best = node;
      }
      ranks_of[best].push_back(rank);
    }
    places.cpus.resize(homes.size());
    places.sharing.resize(homes.size());
    for (auto& [node, ranks] : ranks_of) {
      if (ranks.empty()) continue;
      std::sort(ranks.begin(), ranks.end());
      AIT_ASSIGN_OR_RETURN(RankPlaces here,
                           PlaceOn(machine, cpus_of.at(node), static_cast<int>(ranks.size()),
                                   options.cores, LayoutPolicy::kCompact));
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        places.cpus[ranks[i]] = std::move(here.cpus[i]);
        places.sharing[ranks[i]] = here.sharing[i];
      }
    }
    for (const auto& [node, cpus] : cpus_of) {
      if (!ranks_of[node].empty()) continue;
      places.notes.push_back(
          StrCat("no rank's GPU is on node ", node, ": its CPUs ", cpus.ToString(), " are left"));
    }
  }
  for (std::size_t rank = 0; rank < homes.size(); ++rank) {
    places.gpus.emplace_back(static_cast<int>(rank % options.gpu_nodes.size()));
  }
  return places;
}

}  // namespace

std::optional<int> NearestNode(const Machine& machine, int node, const NodeSet& nodes) {
  if (nodes.contains(node)) return node;
  const NumaNode* const from = machine.FindNode(node);
  if (from == nullptr) return std::nullopt;
  std::optional<int> nearest;
  int least = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < from->distances.size() && i < machine.nodes.size(); ++i) {
    if (!nodes.contains(machine.nodes[i].id) || from->distances[i] >= least) continue;
    least = from->distances[i];
    nearest = machine.nodes[i].id;
  }
  return nearest;
}

StatusOr<RankPlaces> PlaceRanks(const Machine& machine, const CpuSet& usable,
                                const RankLayoutOptions& options) {
  if (options.policy == LayoutPolicy::kGpu) return PlaceByGpu(machine, usable, options);
  return PlaceOn(machine, usable, options.ranks, options.cores, options.policy);
}

}  // namespace ait::inline v0::internal
