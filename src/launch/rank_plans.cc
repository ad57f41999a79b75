// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "ait/base/env.h"
#include "ait/device/runtime.h"
#include "ait/topology/budget.h"
#include "ait/topology/devices.h"
#include "ait/topology/machine.h"
#include "ait/topology/memory_policy.h"
#include "launch/plan_internal.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0::internal {
namespace {

/// What OMP_NUM_THREADS says, or 0. It may be a list with a number for each level of nested
/// parallel regions (OpenMP 5.2, 21.1.2): ranks get the first, for the others are not theirs to
/// divide.
StatusOr<int> ThreadsOf(const Env& env) {
  if (!env.omp_num_threads) return 0;
  int first = 0;
  for (const std::string_view text : Split(*env.omp_num_threads, ',')) {
    const std::optional<int> threads = ParseNumber<int>(Trim(text));
    if (!threads || *threads < 1) {
      return InvalidArgumentError(
          "OMP_NUM_THREADS is \"", *env.omp_num_threads,
          "\"; a number of threads, at least 1, or a list of them (\"4,2\") "
          "is possible: set it so, or say how many threads (--threads)");
    }
    if (first == 0) first = *threads;
  }
  return first;
}

StatusOr<HostLayout> LayOut(const LaunchOptions& options) {
  AIT_ASSIGN_OR_RETURN(const Machine machine, ReadMachine());
  AIT_ASSIGN_OR_RETURN(const Budget budget, ReadBudget());
  const LaunchLayout& layout = options.layout;
  const bool by_gpu = layout.policy == LayoutPolicy::kGpu;
  return LayOutRanks(machine, budget,
                     {.ranks = options.world_size.value(),
                      .policy = layout.policy,
                      .cores = layout.cores,
                      .service_cores = layout.service_cores,
                      .gpu_nodes = by_gpu ? NodesOfGpus() : std::vector<std::optional<int>>()});
}

/// Whether the memory of `node` may be preferred, tried by a thread that then ends: the policy of
/// this one is not ours to change.
Status TryToPrefer(int node) {
  Status status;
  std::thread([&] { status = PreferMemoryOfNode(node); }).join();
  return status;
}

/// Lets ranks prefer the memory that their layout names, where the system lets them.
void PlanMemory(LaunchPlan& plan) {
  std::set<int> works;
  for (RankPlan& rank : plan.ranks) {
    const std::optional<int> node = rank.layout->memory_node;
    if (!node) {
      plan.first_touch = "CPUs of several nodes, or of none that is known";
    } else if (works.contains(*node)) {
      rank.memory_node = node;
    } else if (const Status status = TryToPrefer(*node); status.ok()) {
      works.insert(*node);
      rank.memory_node = node;
    } else {
      plan.first_touch = Message(status);
    }
  }
}

}  // namespace

std::vector<std::optional<int>> NodesOfGpus() {
  std::vector<std::optional<int>> nodes;
  const auto runtime = DeviceRuntime::Open();
  for (int i = 0; i < runtime->count(); ++i) {
    const StatusOr<DeviceInfo> gpu = runtime->Describe(Device(i));
    const auto node = gpu.ok() ? NodeOfPciDevice(gpu->pci_id) : gpu.status();
    nodes.push_back(node.ok() ? *node : std::nullopt);
  }
  if (!nodes.empty()) return nodes;
  for (const GpuPlace& gpu : ReadDevices().gpus) {
    if (gpu.vendor != "Intel") nodes.push_back(gpu.node);  // most of Intel's only show pictures
  }
  return nodes;
}

Status PlanRanks(const LaunchOptions& options, LaunchPlan& plan) {
  const int world_size = options.world_size.value();
  StatusOr<HostLayout> host = LayOut(options);
  if (host.ok()) {
    plan.notes = std::move(host->notes);
    for (RankLayout& rank : host->ranks) {
      plan.ranks.push_back({.threads = rank.threads});
      if (options.binding == CpuBinding::kNone) continue;
      plan.ranks.back().cpus = rank.cpus;
      plan.ranks.back().layout = std::move(rank);
    }
    if (options.binding == CpuBinding::kDivide) PlanMemory(plan);
  } else {
    const LaunchLayout& wanted = options.layout;
    if (wanted.policy != LayoutPolicy::kCompact || wanted.cores > 0 || wanted.service_cores > 0) {
      return host.status();
    }
    // Without /proc and /sys the CPUs have no names; their number is known all the same.
    const int cpus = static_cast<int>(std::thread::hardware_concurrency());
    plan.ranks.assign(static_cast<std::size_t>(world_size),
                      {.threads = std::max(1, cpus / world_size)});
  }
  int threads = options.threads;
  if (threads == 0) {
    AIT_ASSIGN_OR_RETURN(threads, ThreadsOf(Env::FromProcess()));
  }
  if (threads == 0) return OkStatus();
  for (RankPlan& rank : plan.ranks) {
    rank.threads = threads;
    if (rank.layout) rank.layout->threads = threads;
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
