// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/cpu_division.h"

#include <algorithm>
#include <utility>

#include "topology/cpu_units_internal.h"

namespace ait::inline v0 {
namespace {

using internal::GroupBy;
using internal::MakeUnits;
using internal::NodesOf;
using internal::Unit;
using internal::Units;

/// Ranks per group, each at least one: the next rank goes where most units are left for each. Needs
/// at least as many ranks as groups, and at least as many units as ranks.
std::vector<int> Apportion(const std::vector<Units>& groups, int ranks) {
  std::vector<int> counts(groups.size(), 1);
  for (int left = ranks - static_cast<int>(groups.size()); left > 0; --left) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < groups.size(); ++i) {
      // size / (count + 1), compared without division
      if (groups[i].size() * static_cast<std::size_t>(counts[best] + 1) >
          groups[best].size() * static_cast<std::size_t>(counts[i] + 1)) {
        best = i;
      }
    }
    ++counts[best];
  }
  return counts;
}

/// Appends the CPUs of each of `ranks` ranks. `keys` are the groupings to respect, widest first.
void Divide(const Units& units, int ranks, std::vector<int Unit::*> keys,
            std::vector<CpuSet>& result) {
  if (!keys.empty()) {
    const std::vector<Units> groups = GroupBy(units, keys.front());
    keys.erase(keys.begin());
    if (static_cast<std::size_t>(ranks) >= groups.size()) {
      const std::vector<int> counts = Apportion(groups, ranks);
      const std::size_t fair = units.size() / static_cast<std::size_t>(ranks);
      bool costs_a_core = false;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        costs_a_core |= groups[i].size() / static_cast<std::size_t>(counts[i]) < fair;
      }
      if (!costs_a_core) {
        for (std::size_t i = 0; i < groups.size(); ++i) Divide(groups[i], counts[i], keys, result);
        return;
      }
    }
  }
  // In one row: falls on the borders of equal groups by itself.
  const std::size_t n = static_cast<std::size_t>(ranks);
  for (std::size_t rank = 0; rank < n; ++rank) {
    CpuSet cpus;
    for (std::size_t i = rank * units.size() / n; i < (rank + 1) * units.size() / n; ++i) {
      cpus = cpus | units[i].cpus;
    }
    result.push_back(std::move(cpus));
  }
}

}  // namespace

std::string_view Name(CpuSharing sharing) {
  switch (sharing) {
    case CpuSharing::kNothing:
      return "nothing";
    case CpuSharing::kCores:
      return "cores";
    case CpuSharing::kCpus:
      return "cpus";
  }
  return "unknown";
}

StatusOr<CpuDivision> DivideCpus(const Machine& machine, const Budget& budget,
                                 int local_world_size) {
  if (local_world_size < 1) {
    return InvalidArgumentError("cannot divide CPUs among ", local_world_size,
                                " ranks; the local world size is at least 1");
  }
  const CpuSet usable = budget.usable_cpus() & machine.online;
  if (usable.empty()) {
    return FailedPreconditionError("no CPU to divide: online are ", machine.online.ToString(), " (",
                                   machine.cpus.size(), "), usable are ",
                                   budget.usable_cpus().ToString(), " by ", budget.affinity.source);
  }

  CpuDivision division;
  std::vector<CpuSet> sets;
  Units units = MakeUnits(machine, usable, /*whole_cores=*/true);
  std::size_t least_units = 1;
  if (units.size() < static_cast<std::size_t>(local_world_size)) {
    units = MakeUnits(machine, usable, /*whole_cores=*/false);
    division.sharing = CpuSharing::kCores;
  }
  if (units.size() < static_cast<std::size_t>(local_world_size)) {
    division.sharing = CpuSharing::kCpus;
    sets.assign(static_cast<std::size_t>(local_world_size), usable);
  } else {
    Divide(units, local_world_size, {&Unit::node, &Unit::cache_group}, sets);
    least_units = units.size() / static_cast<std::size_t>(local_world_size);
  }

  const int threads =
      std::max(1, std::min(static_cast<int>(least_units), budget.cpu_count() / local_world_size));
  for (CpuSet& cpus : sets) {
    NodeSet nodes = NodesOf(machine, cpus);
    division.ranks.push_back(
        {.cpus = std::move(cpus), .threads = threads, .nodes = std::move(nodes)});
  }
  return division;
}

}  // namespace ait::inline v0
