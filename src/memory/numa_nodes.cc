// SPDX-License-Identifier: Apache-2.0
#include "memory/numa_nodes_internal.h"

#include <algorithm>
#include <utility>

#include "ait/topology/budget.h"
#include "ait/topology/machine.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0::internal {
namespace {

std::string NodesFolder(const SystemRoots& roots) { return roots.sys + "/devices/system/node"; }

std::string List(const NodeSet& nodes) { return nodes.empty() ? "none" : nodes.ToString(); }

/// Orders `allowed` by distance from `node`.
std::vector<int> ByDistance(const Machine& machine, const NumaNode& node, const NodeSet& allowed) {
  std::vector<std::pair<int, int>> order;  // distance, id
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const int id = machine.nodes[i].id;
    if (!allowed.contains(id)) continue;
    const int distance = id == node.id ? 0 : node.distances.empty() ? 20 : node.distances[i];
    order.emplace_back(distance, id);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> ids;
  for (const auto& [distance, id] : order) ids.push_back(id);
  return ids;
}

Status CheckNode(const NumaNodes& nodes, int node) {
  const std::string use = StrCat("; nodes that can be used: ", List(nodes.allowed));
  if (!nodes.online.contains(node)) {
    return InvalidArgumentError("NUMA node ", node, " does not exist", use);
  }
  if (!nodes.with_memory.contains(node)) {
    return InvalidArgumentError("NUMA node ", node, " has no memory", use);
  }
  if (!nodes.allowed.contains(node)) {
    return FailedPreconditionError(
        "NUMA node ", node, " is outside the cpuset of this process, by ", nodes.allowed_by, use);
  }
  return OkStatus();
}

Status CheckWeights(const NumaOptions& options, const NodeSet& nodes) {
  constexpr int kMaxWeight = 1'000'000;
  if (options.policy != NumaPolicy::kWeighted) {
    if (options.weights.empty()) return OkStatus();
    return InvalidArgumentError(options.weights.size(),
                                " weights were given to a policy that has none; use "
                                "NumaPolicy::kWeighted or leave them out");
  }
  if (static_cast<int>(options.weights.size()) != nodes.size() || nodes.empty()) {
    return InvalidArgumentError(options.weights.size(), " weights were given for ", nodes.size(),
                                " NUMA nodes (", List(nodes),
                                "); give one for each, ascending by node");
  }
  for (std::size_t i = 0; i < options.weights.size(); ++i) {
    if (options.weights[i] < 1 || options.weights[i] > kMaxWeight) {
      return InvalidArgumentError("the weight of NUMA node ", nodes[static_cast<int>(i)], " is ",
                                  options.weights[i], "; it must be from 1 to ", kMaxWeight,
                                  ", and a node without a share is left out of `nodes`");
    }
  }
  return OkStatus();
}

/// The value in bytes of "Node 0 <key>   123 kB".
std::int64_t NodeKilobytes(std::string_view meminfo, int node, std::string_view key) {
  const auto value = ValueAfter(meminfo, StrCat("Node ", node, " ", key, ":"));
  const auto words = value ? Words(*value) : std::vector<std::string_view>();
  return words.empty() ? 0 : ParseNumber<std::int64_t>(words[0]).value_or(0);
}

/// Kilobytes of a node that the kernel gives to no user: of each zone its high watermark and what
/// it protects from users that could take other zones (calculate_totalreserve_pages of Linux).
std::int64_t ReservedKilobytes(const SystemRoots& roots, int node) {
  const std::string text = ReadKernelFile(roots.proc + "/zoneinfo").value_or("");
  const std::string head = StrCat("Node ", node, ",");
  std::int64_t reserved = 0;
  std::int64_t high = 0;
  std::int64_t managed = 0;
  bool is_here = false;
  for (const std::string_view line : Split(text, '\n')) {
    const std::vector<std::string_view> words = Words(line);
    if (line.starts_with("Node ")) {
      is_here = line.starts_with(head);
      high = managed = 0;
    } else if (is_here && words.size() == 2 && words[0] == "high") {
      high = ParseNumber<std::int64_t>(words[1]).value_or(0);
    } else if (is_here && words.size() == 2 && words[0] == "managed") {
      managed = ParseNumber<std::int64_t>(words[1]).value_or(0);
    } else if (is_here && !words.empty() && words[0] == "protection:") {
      std::int64_t most = 0;
      for (std::string_view word : words) {
        while (!word.empty() && (word.front() == '(')) word.remove_prefix(1);
        while (!word.empty() && (word.back() == ',' || word.back() == ')')) word.remove_suffix(1);
        most = std::max(most, ParseNumber<std::int64_t>(word).value_or(0));
      }
      reserved += std::min(managed, most + high);
    }
  }
  return reserved * 4;
}

}  // namespace

std::optional<int> NumaNodes::NearestWithMemory(int node) const {
  const auto found = nearest.find(node);
  if (found != nearest.end() && !found->second.empty()) return found->second.front();
  return allowed.empty() ? std::nullopt : std::optional(allowed.front());
}

StatusOr<NumaNodes> ReadNumaNodes(const SystemRoots& roots) {
  NumaNodes nodes;
  const std::string online = NodesFolder(roots) + "/online";
  const auto ids = ReadIdSet(online);
  if (!ids || ids->empty()) {
    nodes.why_unknown = StrCat("the NUMA nodes are unknown: cannot read ", online);
    return nodes;
  }
  AIT_ASSIGN_OR_RETURN(const Machine machine, ReadMachine(roots));
  const StatusOr<Budget> budget = ReadBudget(roots);
  nodes.is_known = true;
  for (const NumaNode& node : machine.nodes) {
    nodes.online.Add(node.id);
    if (node.memory > Bytes(0)) nodes.with_memory.Add(node.id);
    if (!node.cpus.empty()) nodes.with_cpus.Add(node.id);
    nodes.cpus[node.id] =
        budget.ok() && budget->cpuset ? node.cpus & budget->cpuset->value : node.cpus;
  }
  if (const auto with_memory = ReadIdSet(NodesFolder(roots) + "/has_memory")) {
    nodes.with_memory = *with_memory & nodes.online;
  }
  nodes.allowed = nodes.with_memory;
  if (budget.ok() && budget->memory_nodes) {
    nodes.allowed = nodes.with_memory & budget->memory_nodes->value;
    nodes.allowed_by = budget->memory_nodes->source;
  }
  const NodeSet fast = nodes.allowed & nodes.with_cpus;
  for (const NumaNode& node : machine.nodes) {
    nodes.nearest[node.id] = ByDistance(machine, node, fast.empty() ? nodes.allowed : fast);
  }
  return nodes;
}

StatusOr<NodeSet> ResolveNodes(const NumaNodes& nodes, const NumaOptions& options, int current) {
  NodeSet resolved = options.nodes;
  if (options.policy == NumaPolicy::kLocal && !resolved.empty()) {
    return InvalidArgumentError("the local policy takes the node of each thread, but nodes ",
                                resolved.ToString(),
                                " were named; leave them out or use NumaPolicy::kPreferred");
  }
  if (nodes.is_known) {
    for (int node : resolved) AIT_RETURN_IF_ERROR(CheckNode(nodes, node));
    const bool one =
        options.policy == NumaPolicy::kPreferred || options.policy == NumaPolicy::kStrict;
    if (resolved.empty() && one) {
      if (const auto nearest = nodes.NearestWithMemory(current)) resolved.Add(*nearest);
    } else if (resolved.empty()) {
      resolved = nodes.allowed & nodes.with_cpus;
      if (resolved.empty()) resolved = nodes.allowed;  // all of it is slow memory
    }
  }
  AIT_RETURN_IF_ERROR(CheckWeights(options, resolved));
  return resolved;
}

std::optional<Bytes> AvailableOnNode(const SystemRoots& roots, int node) {
  const auto meminfo = ReadKernelFile(StrCat(NodesFolder(roots), "/node", node, "/meminfo"));
  if (!meminfo || !ValueAfter(*meminfo, StrCat("Node ", node, " MemFree:"))) return std::nullopt;
  // Half of the file cache: the kernel keeps the part in use (as in its own MemAvailable).
  const std::int64_t cache = NodeKilobytes(*meminfo, node, "Active(file)") +
                             NodeKilobytes(*meminfo, node, "Inactive(file)");
  const std::int64_t kilobytes =
      NodeKilobytes(*meminfo, node, "MemFree") + cache / 2 - ReservedKilobytes(roots, node);
  return KiB(std::max<std::int64_t>(kilobytes, 0));
}

std::optional<HugePagePool> ReadHugePagePool(const SystemRoots& roots, int node) {
  const std::string folder =
      StrCat(NodesFolder(roots), "/node", node, "/hugepages/hugepages-2048kB");
  const auto total = ReadInteger(folder + "/nr_hugepages");
  const auto free = ReadInteger(folder + "/free_hugepages");
  if (!total || !free) return std::nullopt;
  return HugePagePool{.total = *total, .free = *free, .path = folder + "/nr_hugepages"};
}

Status CheckRoom(const SystemRoots& roots, std::size_t bytes) {
  const StatusOr<Budget> budget = ReadBudget(roots);
  if (!budget.ok() || !budget->memory_available) return OkStatus();  // unknown does not limit
  const auto& [available, source] = *budget->memory_available;
  if (static_cast<std::size_t>(available.value()) >= bytes) return OkStatus();
  return ResourceExhaustedError(available, " bytes are available by ", source,
                                "; ask for less or raise the memory limit");
}

}  // namespace ait::inline v0::internal
