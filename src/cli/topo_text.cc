// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cli/program.h"
#include "cli/topo_report.h"

namespace ait::cli {
namespace {

std::string Size(Bytes bytes) {
  if (bytes == Bytes(0)) return "unknown";
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(bytes.value()) / (1 << 30));
  return text;
}

/// Sizes of which zero is one.
std::string Amount(Bytes bytes) {
  if (bytes == Bytes(0)) return "0";
  if (bytes < GiB(1)) return StrCat(bytes.value() >> 10, " KiB");
  return Size(bytes);
}

std::string PageSize(Bytes page) {
  if (page >= GiB(1)) return StrCat(page.value() >> 30, " GiB");
  return page >= MiB(1) ? StrCat(page.value() >> 20, " MiB") : StrCat(page.value() >> 10, " KiB");
}

std::string List(const IdSet& set, std::string_view empty = "unknown") {
  return set.empty() ? std::string(empty) : set.ToString();
}

std::string NodeName(const std::optional<int>& node) {
  return node ? StrCat("node ", *node) : "node unknown";
}

template <typename T, typename Format>
std::string Limit(const std::optional<Sourced<T>>& limit, Format format) {
  return limit ? StrCat(format(limit->value), "  (", limit->source, ")") : "none";
}

std::string DescribeNode(const NumaNode& node, const HugePageState& huge_pages) {
  std::string text = StrCat("  node ", node.id, ": CPUs ", List(node.cpus, "none"), ", memory ",
                            node.memory == Bytes(0) ? "none" : Size(node.memory));
  if (!node.distances.empty()) {
    text += ", distances";
    for (const int distance : node.distances) text += StrCat(" ", distance);
  }
  for (const HugePagePool& pool : huge_pages.pools) {
    if (pool.node != node.id || pool.total == 0) continue;
    text += StrCat(", huge pages of ", PageSize(pool.page), " ", pool.free, " of ", pool.total,
                   " free");
  }
  return text + "\n";
}

std::string Describe(const Machine& machine, const HugePageState& huge_pages) {
  std::string text =
      StrCat("machine\n  CPUs: ", machine.online.size(), " (", machine.online.ToString(),
             "), cores: ", machine.cores.size(), "\n  memory: ", Size(machine.memory), "\n");
  for (const NumaNode& node : machine.nodes) text += DescribeNode(node, huge_pages);
  for (const CacheGroup& group : machine.cache_groups) {
    if (group.level == 0) continue;
    text += StrCat("  L", group.level, " cache of ", group.size.value() >> 10, " KiB: CPUs ",
                   group.cpus.ToString(), "\n");
  }
  if (!huge_pages.transparent.empty()) {
    text += StrCat("  transparent huge pages: ", huge_pages.transparent, "\n");
  }
  for (const std::string& note : machine.notes) text += StrCat("  note: ", note, "\n");
  return text;
}

std::string Describe(const MachineDevices& devices) {
  std::string text;
  for (const GpuPlace& gpu : devices.gpus) {
    text += StrCat("  GPU ", gpu.pci_id, " of ", gpu.vendor, ": ", NodeName(gpu.node),
                   ", near CPUs ", List(gpu.local_cpus), "\n");
  }
  if (devices.gpus.empty()) text += "  GPUs: none\n";
  for (const NetworkPlace& network : devices.networks) {
    text += StrCat("  ", network.kind == NetworkKind::kInfiniband ? "InfiniBand " : "network ",
                   network.name, network.is_up ? "" : " (down)", ": ", NodeName(network.node),
                   network.pci_id.empty() ? "" : ", PCI ", network.pci_id, "\n");
  }
  for (const std::string& note : devices.notes) text += StrCat("  note: ", note, "\n");
  return text;
}

std::string Describe(const Budget& budget) {
  const auto cpus = [](const CpuSet& set) { return set.ToString(); };
  const auto number = [](double value) { return StrCat(value); };
  const auto ulimit = [](const std::optional<Bytes>& limit) {
    return limit ? Amount(*limit) : std::string("none");
  };
  return StrCat("this process\n  affinity: ", budget.affinity.value.ToString(),
                "\n  cpuset: ", Limit(budget.cpuset, cpus),
                "\n  CPU quota: ", Limit(budget.cpu_quota, number),
                "\n  memory of nodes: ", Limit(budget.memory_nodes, cpus),
                "\n  memory limit: ", Limit(budget.memory_limit, Amount),
                "\n  memory available: ", Limit(budget.memory_available, Amount),
                "\n  swap available: ", Limit(budget.swap_available, Amount),
                "\n  limit of locked memory: ", ulimit(budget.limits.locked_memory),
                "\n  limit of address space: ", ulimit(budget.limits.address_space),
                "\n  worth of threads: ", budget.cpu_count(), "\n");
}

std::string Describe(const RankLayout& rank) {
  std::string text = StrCat("CPUs ", rank.cpus.ToString(), ", threads ", rank.threads, ", nodes ",
                            List(rank.nodes));
  if (rank.memory_node) text += StrCat(", memory of node ", *rank.memory_node);
  if (rank.gpu) text += StrCat(", GPU ", *rank.gpu);
  if (rank.loaders == rank.cpus && rank.compute == rank.cpus) return text;
  return StrCat(text, "; compute ", rank.compute.ToString(), ", communication ",
                rank.communication.ToString(), ", loaders ", rank.loaders.ToString());
}

std::string Describe(const ChosenLayout& layout) {
  const HostLayout& host = layout.host;
  std::string text = StrCat(Counted(static_cast<std::int64_t>(host.ranks.size()), "rank"),
                            ", sharing ", Name(host.sharing), ", ", Name(layout.policy), "\n");
  for (std::size_t rank = 0; rank < host.ranks.size(); ++rank) {
    text += StrCat("  rank ", rank, ": ", Describe(host.ranks[rank]), "\n");
  }
  for (const std::string& note : host.notes) text += StrCat("  note: ", note, "\n");
  return text;
}

}  // namespace

std::string TopoText(const TopoReport& report) {
  std::string text = StrCat(Describe(report.machine, report.huge_pages), Describe(report.devices),
                            Describe(report.budget));
  for (const ChosenLayout& layout : report.layouts) text += Describe(layout);
  return text;
}

}  // namespace ait::cli
