// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "topology/cgroup_internal.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {
namespace {

using internal::CgroupDirectories;
using internal::ParseNumber;
using internal::ReadIdSet;
using internal::ReadInteger;
using internal::ReadKernelFile;
using internal::ReadLine;
using internal::ValueAfter;
using internal::Words;

/// Version 1 writes "no limit" as the largest multiple of a page; no machine has so much memory.
constexpr std::int64_t kNoMemoryLimit = std::int64_t{1} << 60;

template <typename T>
void TakeLeast(std::optional<Sourced<T>>& least, T value, const std::string& source) {
  if (!least || value < least->value) least = Sourced<T>{value, source};
}

/// The set after `key` in /proc/self/status.
std::optional<Sourced<IdSet>> SetInStatus(const SystemRoots& roots, std::string_view key) {
  const std::string path = roots.proc + "/self/status";
  const std::string text = ReadKernelFile(path).value_or("");
  const auto list = ValueAfter(text, key);
  if (!list) return std::nullopt;
  StatusOr<IdSet> set = IdSet::Parse(*list);
  if (!set.ok() || set->empty()) return std::nullopt;
  return Sourced<IdSet>{*std::move(set), path};
}

void ReadCpuset(const SystemRoots& roots, Budget& budget) {
  for (const std::string& directory : CgroupDirectories(roots, "cpuset")) {
    // The effective set of a level has those of its parents in it; the others are for old kernels.
    for (const char* name : {"/cpuset.cpus.effective", "/cpuset.effective_cpus", "/cpuset.cpus"}) {
      const auto cpus = ReadIdSet(directory + name);
      if (!cpus || cpus->empty()) continue;
      if (!budget.cpuset) {
        budget.cpuset = Sourced<CpuSet>{*cpus, directory + name};
      } else if (CpuSet both = budget.cpuset->value & *cpus; both != budget.cpuset->value) {
        budget.cpuset = Sourced<CpuSet>{std::move(both), directory + name};
      }
      break;
    }
  }
}

void ReadCpuQuota(const SystemRoots& roots, Budget& budget) {
  for (const std::string& directory : CgroupDirectories(roots, "cpu")) {
    std::optional<std::int64_t> quota;
    std::optional<std::int64_t> period;
    std::string source = directory + "/cpu.max";
    if (const auto line = ReadLine(source)) {  // version 2: "150000 100000" or "max 100000"
      const auto words = Words(*line);
      if (words.size() == 2) {
        quota = ParseNumber<std::int64_t>(words[0]);
        period = ParseNumber<std::int64_t>(words[1]);
      }
    } else {
      source = directory + "/cpu.cfs_quota_us";
      quota = ReadInteger(source);  // -1 if there is none
      period = ReadInteger(directory + "/cpu.cfs_period_us");
    }
    if (!quota || !period || *quota <= 0 || *period <= 0) continue;
    TakeLeast(budget.cpu_quota, static_cast<double>(*quota) / static_cast<double>(*period), source);
  }
}

/// First number after `key` in a file of lines such as "key 12" or "key: 12 kB"; 0 if not there.
std::int64_t NumberInStat(const std::string& path, std::string_view key) {
  const std::string text = ReadKernelFile(path).value_or("");
  const auto words = Words(ValueAfter(text, key).value_or(""));
  return words.empty() ? 0 : ParseNumber<std::int64_t>(words[0]).value_or(0);
}

void ReadMemory(const SystemRoots& roots, Budget& budget) {
  const std::string meminfo_path = roots.proc + "/meminfo";
  if (const auto kilobytes = NumberInStat(meminfo_path, "MemAvailable:"); kilobytes > 0) {
    budget.memory_available = Sourced<Bytes>{KiB(kilobytes), meminfo_path};
  }
  for (const std::string& directory : CgroupDirectories(roots, "memory")) {
    const std::string stat = directory + "/memory.stat";
    std::string source = directory + "/memory.max";
    std::optional<std::int64_t> limit = ReadInteger(source);  // version 2; "max" is no number
    std::int64_t used = 0;
    if (limit) {
      used = ReadInteger(directory + "/memory.current").value_or(0) -
             NumberInStat(stat, "inactive_file ");
    } else {
      source = directory + "/memory.limit_in_bytes";
      limit = ReadInteger(source);
      used = ReadInteger(directory + "/memory.usage_in_bytes").value_or(0) -
             NumberInStat(stat, "total_inactive_file ");
      // Limits of parents that this process cannot see.
      const std::int64_t inherited = NumberInStat(stat, "hierarchical_memory_limit ");
      if (limit && inherited > 0 && inherited < *limit) {
        limit = inherited;
        source = stat;
      }
    }
    if (!limit || *limit < 0 || *limit >= kNoMemoryLimit) continue;
    TakeLeast(budget.memory_limit, Bytes(*limit), source);
    const std::int64_t left = std::max<std::int64_t>(*limit - std::max<std::int64_t>(used, 0), 0);
    TakeLeast(budget.memory_available, Bytes(left), source);
  }
}

void ReadSwap(const SystemRoots& roots, Budget& budget) {
  const std::string path = roots.proc + "/meminfo";
  const std::string text = ReadKernelFile(path).value_or("");
  if (ValueAfter(text, "SwapFree:")) {
    budget.swap_available = Sourced<Bytes>{KiB(NumberInStat(path, "SwapFree:")), path};
  }
  for (const std::string& directory : CgroupDirectories(roots, "memory")) {
    // Version 2 limits swap by itself; version 1 only memory and swap together.
    const std::string source = directory + "/memory.swap.max";
    const auto limit = ReadInteger(source);
    if (!limit || *limit < 0 || *limit >= kNoMemoryLimit) continue;
    const std::int64_t used = ReadInteger(directory + "/memory.swap.current").value_or(0);
    TakeLeast(budget.swap_available, Bytes(std::max<std::int64_t>(*limit - used, 0)), source);
  }
}

ResourceLimits ReadLimits(const SystemRoots& roots) {
  const std::string text = ReadKernelFile(roots.proc + "/self/limits").value_or("");
  // "Max locked memory         8388608              8388608              bytes": soft, then hard.
  const auto soft = [&text](std::string_view name) -> std::optional<std::int64_t> {
    const auto words = Words(ValueAfter(text, name).value_or(""));
    if (words.empty()) return std::nullopt;
    const auto value = ParseNumber<std::uint64_t>(words[0]);  // "unlimited" is no number
    if (!value || *value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      return std::nullopt;
    return static_cast<std::int64_t>(*value);
  };
  const auto bytes = [](std::optional<std::int64_t> value) {
    return value ? std::optional<Bytes>(Bytes(*value)) : std::nullopt;
  };
  return {.locked_memory = bytes(soft("Max locked memory")),
          .address_space = bytes(soft("Max address space")),
          .file_size = bytes(soft("Max file size")),
          .open_files = soft("Max open files")};
}

}  // namespace

CpuSet Budget::usable_cpus() const {
  if (!cpuset) return affinity.value;
  CpuSet both = affinity.value & cpuset->value;
  return both.empty() ? affinity.value : both;
}

int Budget::cpu_count() const {
  int count = usable_cpus().size();
  if (cpu_quota && cpu_quota->value < count) count = static_cast<int>(std::ceil(cpu_quota->value));
  return std::max(count, 1);
}

StatusOr<Budget> ReadBudget(const SystemRoots& roots) {
  Budget budget;
  auto affinity = SetInStatus(roots, "Cpus_allowed_list:");
  if (!affinity) {
    return NotFoundError("cannot read the CPU affinity: no Cpus_allowed_list in ", roots.proc,
                         "/self/status; mount /proc or name another root");
  }
  budget.affinity = *std::move(affinity);
  budget.memory_nodes = SetInStatus(roots, "Mems_allowed_list:");
  ReadCpuset(roots, budget);
  ReadCpuQuota(roots, budget);
  ReadMemory(roots, budget);
  ReadSwap(roots, budget);
  budget.limits = ReadLimits(roots);
  return budget;
}

}  // namespace ait::inline v0
