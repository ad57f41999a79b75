// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <tuple>
#include <utility>

#include "topology/cpu_units_internal.h"

namespace ait::inline v0::internal {

Units MakeUnits(const Machine& machine, const CpuSet& usable, bool whole_cores) {
  std::map<std::tuple<int, int, int, int>, Unit> ordered;  // by node, cache, core, thread
  for (int id : usable) {
    const Cpu& cpu = *machine.FindCpu(id);
    const int node = cpu.node.value_or(-1);
    Unit& unit = ordered[{node, cpu.cache_group, cpu.core, whole_cores ? 0 : id}];
    unit.cpus.Add(id);
    unit.node = node;
    unit.cache_group = cpu.cache_group;
  }
  Units units;
  for (auto& [key, unit] : ordered) units.push_back(std::move(unit));
  return units;
}

std::vector<Units> GroupBy(const Units& units, int Unit::* key) {
  std::vector<Units> groups;
  for (const Unit& unit : units) {
    if (groups.empty() || groups.back().back().*key != unit.*key) groups.emplace_back();
    groups.back().push_back(unit);
  }
  return groups;
}

CpuSet CpusOf(const Units& units) {
  CpuSet cpus;
  for (const Unit& unit : units) cpus = cpus | unit.cpus;
  return cpus;
}

NodeSet NodesOf(const Machine& machine, const CpuSet& cpus) {
  NodeSet nodes;
  for (int cpu : cpus) {
    if (const auto node = machine.FindCpu(cpu)->node) nodes.Add(*node);
  }
  return nodes;
}

}  // namespace ait::inline v0::internal
