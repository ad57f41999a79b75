// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cli/topo_report.h"

namespace ait::cli {
namespace {

using Json = nlohmann::ordered_json;

/// What is unknown is null, never zero.
Json Known(Bytes bytes) { return bytes == Bytes(0) ? Json() : Json(bytes.value()); }
Json Known(const std::optional<int>& value) { return value ? Json(*value) : Json(); }
Json Known(const std::optional<Bytes>& value) { return value ? Json(value->value()) : Json(); }

Json List(const IdSet& set) { return set.ToString(); }

template <typename T, typename Format>
Json Limit(const std::optional<Sourced<T>>& limit, Format format) {
  if (!limit) return {};
  return {{"value", format(limit->value)}, {"source", limit->source}};
}

Json ToJson(const Machine& machine, const HugePageState& huge_pages) {
  Json json = {{"cpus", List(machine.online)},
               {"cores", machine.cores.size()},
               {"memory_bytes", Known(machine.memory)},
               {"nodes", Json::array()},
               {"caches", Json::array()},
               {"transparent_huge_pages", huge_pages.transparent},
               {"notes", machine.notes}};
  for (const NumaNode& node : machine.nodes) {
    Json pools = Json::array();
    for (const HugePagePool& pool : huge_pages.pools) {
      if (pool.node != node.id) continue;
      pools.push_back(
          {{"page_bytes", pool.page.value()}, {"total", pool.total}, {"free", pool.free}});
    }
    json["nodes"].push_back({{"id", node.id},
                             {"cpus", List(node.cpus)},
                             {"memory_bytes", node.memory.value()},
                             {"distances", node.distances},
                             {"huge_pages", std::move(pools)}});
  }
  for (const CacheGroup& group : machine.cache_groups) {
    json["caches"].push_back({{"level", group.level == 0 ? Json() : Json(group.level)},
                              {"bytes", Known(group.size)},
                              {"cpus", List(group.cpus)}});
  }
  return json;
}

Json ToJson(const MachineDevices& devices) {
  Json json = {{"gpus", Json::array()}, {"networks", Json::array()}, {"notes", devices.notes}};
  for (const GpuPlace& gpu : devices.gpus) {
    json["gpus"].push_back({{"pci", gpu.pci_id},
                            {"vendor", gpu.vendor},
                            {"node", Known(gpu.node)},
                            {"local_cpus", List(gpu.local_cpus)}});
  }
  for (const NetworkPlace& network : devices.networks) {
    json["networks"].push_back(
        {{"name", network.name},
         {"kind", network.kind == NetworkKind::kInfiniband ? "infiniband" : "ethernet"},
         {"pci", network.pci_id},
         {"node", Known(network.node)},
         {"up", network.is_up}});
  }
  return json;
}

Json ToJson(const Budget& budget) {
  const auto ids = [](const IdSet& set) { return set.ToString(); };
  const auto bytes = [](Bytes value) { return value.value(); };
  const auto same = [](double value) { return value; };
  return {
      {"affinity", {{"value", List(budget.affinity.value)}, {"source", budget.affinity.source}}},
      {"cpuset", Limit(budget.cpuset, ids)},
      {"cpu_quota", Limit(budget.cpu_quota, same)},
      {"memory_nodes", Limit(budget.memory_nodes, ids)},
      {"memory_limit", Limit(budget.memory_limit, bytes)},
      {"memory_available", Limit(budget.memory_available, bytes)},
      {"swap_available", Limit(budget.swap_available, bytes)},
      {"locked_memory_limit", Known(budget.limits.locked_memory)},
      {"address_space_limit", Known(budget.limits.address_space)},
      {"cpu_count", budget.cpu_count()}};
}

Json ToJson(const ChosenLayout& layout) {
  Json json = {{"policy", Name(layout.policy)},
               {"sharing", Name(layout.host.sharing)},
               {"ranks", Json::array()},
               {"notes", layout.host.notes}};
  for (const RankLayout& rank : layout.host.ranks) {
    json["ranks"].push_back({{"cpus", List(rank.cpus)},
                             {"compute", List(rank.compute)},
                             {"communication", List(rank.communication)},
                             {"loaders", List(rank.loaders)},
                             {"threads", rank.threads},
                             {"loader_threads", rank.loader_threads},
                             {"nodes", List(rank.nodes)},
                             {"memory_node", Known(rank.memory_node)},
                             {"gpu", Known(rank.gpu)},
                             {"environment", ToText(rank)}});
  }
  return json;
}

}  // namespace

std::string TopoJson(const TopoReport& report) {
  Json json = {{"machine", ToJson(report.machine, report.huge_pages)},
               {"devices", ToJson(report.devices)},
               {"process", ToJson(report.budget)},
               {"layouts", Json::array()}};
  for (const ChosenLayout& layout : report.layouts) json["layouts"].push_back(ToJson(layout));
  return json.dump(1) + "\n";
}

}  // namespace ait::cli
