// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/machine.h"

#include <algorithm>
#include <limits>
#include <map>

#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {
namespace {

using internal::ParseNumber;
using internal::ReadIdSet;
using internal::ReadInteger;
using internal::ReadKernelFile;
using internal::ReadLine;
using internal::ValueAfter;
using internal::Words;

/// The online CPUs by /sys, else by /proc/cpuinfo, else by the affinity of this process.
StatusOr<CpuSet> ReadOnlineCpus(const SystemRoots& roots, std::vector<std::string>& notes) {
  const std::string online_path = roots.sys + "/devices/system/cpu/online";
  if (auto online = ReadIdSet(online_path); online && !online->empty()) return *online;

  CpuSet cpus;
  const std::string cpuinfo_path = roots.proc + "/cpuinfo";
  const std::string cpuinfo = ReadKernelFile(cpuinfo_path).value_or("");
  for (std::string_view line : internal::Split(cpuinfo, '\n')) {
    if (!line.starts_with("processor")) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (auto id = ParseNumber<int>(internal::Trim(line.substr(colon + 1)))) cpus.Add(*id);
  }
  if (!cpus.empty()) {
    notes.push_back(StrCat("online CPUs from ", cpuinfo_path, ": cannot read ", online_path));
    return cpus;
  }

  const std::string status_path = roots.proc + "/self/status";
  const std::string status = ReadKernelFile(status_path).value_or("");
  if (auto list = ValueAfter(status, "Cpus_allowed_list:")) {
    if (auto allowed = CpuSet::Parse(*list); allowed.ok() && !allowed->empty()) {
      notes.push_back(StrCat("online CPUs from the affinity in ", status_path, ": cannot read ",
                             online_path, " or ", cpuinfo_path));
      return *allowed;
    }
  }
  return NotFoundError("no CPU found: none of ", online_path, ", ", cpuinfo_path, " and ",
                       status_path, " can be read; mount /proc or name other roots");
}

/// The value of a line such as "MemTotal:  24683652 kB", 0 if unknown.
Bytes KilobytesAfter(std::string_view text, std::string_view key) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 1024;
  const auto value = ValueAfter(text, key);
  const auto words = value ? Words(*value) : std::vector<std::string_view>();
  const auto kilobytes = words.empty() ? std::nullopt : ParseNumber<std::int64_t>(words[0]);
  return kilobytes && *kilobytes >= 0 && *kilobytes <= kMost ? KiB(*kilobytes) : Bytes(0);
}

NumaNode ReadNode(const std::string& directory, int id, const CpuSet& online, std::size_t nodes) {
  NumaNode node{.id = id};
  node.cpus = ReadIdSet(directory + "/cpulist").value_or(CpuSet()) & online;
  const std::string meminfo = ReadKernelFile(directory + "/meminfo").value_or("");
  node.memory = KilobytesAfter(meminfo, StrCat("Node ", id, " MemTotal:"));
  const std::string distances = ReadLine(directory + "/distance").value_or("");
  for (std::string_view word : Words(distances)) {
    node.distances.push_back(ParseNumber<int>(word).value_or(0));
  }
  if (node.distances.size() != nodes) node.distances.clear();
  return node;
}

void ReadNodes(const SystemRoots& roots, Machine& machine) {
  const std::string directory = roots.sys + "/devices/system/node";
  const NodeSet ids = ReadIdSet(directory + "/online").value_or(NodeSet());
  for (int id : ids) {
    machine.nodes.push_back(ReadNode(StrCat(directory, "/node", id), id, machine.online,
                                     static_cast<std::size_t>(ids.size())));
  }
  if (machine.nodes.empty()) {
    machine.notes.push_back(StrCat("one NUMA node assumed: cannot read ", directory, "/online"));
    machine.nodes.push_back({.id = 0, .cpus = machine.online, .memory = machine.memory});
  }
}

bool Has(const CpuSet& core, int cpu) { return core.contains(cpu); }
bool Has(const CacheGroup& group, int cpu) { return group.cpus.contains(cpu); }

/// Index of the core or cache that has `cpu`; groups.size() if none has.
template <typename Group>
std::size_t IndexOfGroup(const std::vector<Group>& groups, int cpu) {
  std::size_t index = 0;
  while (index < groups.size() && !Has(groups[index], cpu)) ++index;
  return index;
}

/// "32768K" or "16M" in bytes, 0 if unknown.
Bytes ParseCacheSize(std::string_view text) {
  if (text.empty()) return Bytes(0);
  const char unit = text.back();
  if (unit == 'K' || unit == 'M') text.remove_suffix(1);
  const std::int64_t number = ParseNumber<std::int32_t>(text).value_or(0);
  return unit == 'M' ? MiB(number) : unit == 'K' ? KiB(number) : Bytes(number);
}

/// The cache of the highest level that holds data; a group without CPUs if /sys does not tell.
CacheGroup ReadLastLevelCache(const std::string& cpu_directory) {
  CacheGroup last;
  for (int index = 0;; ++index) {
    const std::string directory = StrCat(cpu_directory, "/cache/index", index);
    const auto level = ReadInteger(directory + "/level");
    if (!level) return last;
    if (*level <= last.level || ReadLine(directory + "/type") == "Instruction") continue;
    auto cpus = ReadIdSet(directory + "/shared_cpu_list");
    if (!cpus || cpus->empty()) continue;
    last = {.cpus = *std::move(cpus),
            .level = static_cast<int>(*level),
            .size = ParseCacheSize(ReadLine(directory + "/size").value_or(""))};
  }
}

/// Sorts the CPUs into cores and caches. What /sys says of a CPU counts only for CPUs that are
/// online and in no other group, so that each CPU ends in exactly one.
void ReadCpus(const SystemRoots& roots, Machine& machine) {
  std::map<int, int> node_of;
  for (const NumaNode& node : machine.nodes) {
    for (int cpu : node.cpus) node_of.emplace(cpu, node.id);
  }
  CpuSet without_core = machine.online;
  CpuSet without_cache = machine.online;
  int unknown_cores = 0;
  int unknown_caches = 0;
  for (int id : machine.online) {
    Cpu cpu{.id = id};
    const std::string directory = StrCat(roots.sys, "/devices/system/cpu/cpu", id);
    if (auto found = node_of.find(id); found != node_of.end()) cpu.node = found->second;
    if (auto package = ReadInteger(directory + "/topology/physical_package_id");
        package && *package >= 0 && *package <= std::numeric_limits<int>::max()) {
      cpu.package = static_cast<int>(*package);
    }

    const std::size_t core = IndexOfGroup(machine.cores, id);
    if (core == machine.cores.size()) {
      const auto siblings = ReadIdSet(directory + "/topology/thread_siblings_list");
      unknown_cores += siblings ? 0 : 1;
      machine.cores.push_back((siblings.value_or(CpuSet()) & without_core) | CpuSet{id});
      without_core = without_core - machine.cores.back();
    }
    cpu.core = static_cast<int>(core);

    const std::size_t cache = IndexOfGroup(machine.cache_groups, id);
    if (cache == machine.cache_groups.size()) {
      CacheGroup group = ReadLastLevelCache(directory);
      if (group.cpus.empty()) {
        ++unknown_caches;
        if (cpu.node) group.cpus = machine.FindNode(*cpu.node)->cpus;
      }
      group.cpus = (group.cpus & without_cache) | CpuSet{id};
      without_cache = without_cache - group.cpus;
      machine.cache_groups.push_back(std::move(group));
    }
    cpu.cache_group = static_cast<int>(cache);
    machine.cpus.push_back(cpu);
  }
  if (unknown_cores > 0) {
    machine.notes.push_back(StrCat("one core assumed for each of ", unknown_cores,
                                   " CPUs: cannot read ", roots.sys,
                                   "/devices/system/cpu/cpu*/topology/thread_siblings_list"));
  }
  if (unknown_caches > 0) {
    machine.notes.push_back(StrCat("one last-level cache assumed for each of ", unknown_caches,
                                   " nodes: cannot read ", roots.sys,
                                   "/devices/system/cpu/cpu*/cache"));
  }
}

}  // namespace

const Cpu* Machine::FindCpu(int id) const {
  const auto found = std::lower_bound(cpus.begin(), cpus.end(), id,
                                      [](const Cpu& cpu, int value) { return cpu.id < value; });
  return found != cpus.end() && found->id == id ? &*found : nullptr;
}

const NumaNode* Machine::FindNode(int id) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [id](const NumaNode& n) { return n.id == id; });
  return found != nodes.end() ? &*found : nullptr;
}

StatusOr<Machine> ReadMachine(const SystemRoots& roots) {
  Machine machine;
  AIT_ASSIGN_OR_RETURN(machine.online, ReadOnlineCpus(roots, machine.notes));
  const std::string meminfo = ReadKernelFile(roots.proc + "/meminfo").value_or("");
  machine.memory = KilobytesAfter(meminfo, "MemTotal:");
  if (machine.memory == Bytes(0)) {
    machine.notes.push_back(
        StrCat("memory unknown: cannot read MemTotal in ", roots.proc, "/meminfo"));
  }
  ReadNodes(roots, machine);
  ReadCpus(roots, machine);
  return machine;
}

}  // namespace ait::inline v0
