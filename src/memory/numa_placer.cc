// SPDX-License-Identifier: Apache-2.0
#include "memory/numa_placer_internal.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>

#include "memory/mapping_internal.h"

namespace ait::inline v0::internal {
namespace {

// Strict memory is asked for in such pieces, each checked, so that the check is not far behind.
constexpr std::size_t kStrictPiece = std::size_t{64} << 20;

std::size_t RoundTo(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step * step;
}

std::string NamesOf(const NodeSet& nodes) {
  return StrCat(nodes.size() == 1 ? "NUMA node " : "NUMA nodes ", nodes.ToString());
}

bool IsForbidden(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

/// Pages of a mapping that go to the next node at once under interleaving.
std::size_t InterleaveUnit(PageKind pages) { return pages == PageKind::kSmall ? kPage : kHugePage; }

/// Boundaries between nodes. Whole huge pages where they make little difference to the shares.
std::size_t SplitGranule(std::size_t bytes, PageKind pages) {
  const bool is_fine =
      pages == PageKind::kSmall || (pages == PageKind::kTransparentHuge && bytes < 64 * kHugePage);
  return is_fine ? kPage : kHugePage;
}

}  // namespace

std::vector<std::size_t> SplitByWeight(std::size_t bytes, const std::vector<int>& weights,
                                       std::size_t granule) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::size_t units = bytes / granule;
  std::vector<std::size_t> ends;
  double sum = 0;
  for (int weight : weights) {
    sum += weight;
    ends.push_back(static_cast<std::size_t>(static_cast<double>(units) * sum / all + 0.5) *
                   granule);
  }
  ends.back() = bytes;
  return ends;
}

PlacementExpectation NumaTarget::expectation() const {
  if (policy == NumaPolicy::kWeighted) return {.nodes = nodes, .weights = weights};
  if (policy != NumaPolicy::kInterleave) return {.nodes = nodes};
  return {.nodes = nodes, .weights = std::vector<int>(static_cast<std::size_t>(nodes.size()), 1)};
}

Status NumaPlacer::CheckHugePages(const NumaTarget& target, std::size_t bytes) const {
  const auto need = static_cast<std::int64_t>(bytes / kHugePage);
  std::vector<std::int64_t> shares;
  if (target.policy == NumaPolicy::kWeighted || target.policy == NumaPolicy::kInterleave) {
    const auto expectation = target.expectation();
    std::size_t begin = 0;
    for (std::size_t end : SplitByWeight(bytes, expectation.weights, kHugePage)) {
      shares.push_back(static_cast<std::int64_t>((end - begin) / kHugePage));
      begin = end;
    }
  }
  std::int64_t free = 0;
  std::string command;
  std::string node_text;
  std::int64_t missing = 0;
  for (int i = 0; i < target.nodes.size(); ++i) {
    const int node = target.nodes[i];
    const auto pool = ReadHugePagePool(options_.roots, node);
    if (!pool) {
      return ResourceExhaustedError("NUMA node ", node,
                                    " has no reserved huge pages of 2 MiB: the kernel lacks "
                                    "hugetlb, or ",
                                    options_.roots.sys, " hides it");
    }
    free += pool->free;
    const std::int64_t share = shares.empty() ? need : shares[static_cast<std::size_t>(i)];
    if (pool->free >= share) continue;
    if (command.empty()) {
      missing = share - pool->free;
      node_text = StrCat("NUMA node ", node, " has ", pool->free, " of ", pool->total,
                         " reserved huge pages of 2 MiB free and ", share, " are needed");
      command = StrCat("echo ", pool->total + missing, " > ", pool->path);
    }
  }
  const bool is_enough = shares.empty() ? free >= need || target.nodes.empty() : command.empty();
  if (is_enough) return OkStatus();
  return ResourceExhaustedError(node_text, ": ", missing, " are missing; reserve them as root by ",
                                command, ", or use HugePageShortage::kUseTransparent");
}

Status NumaPlacer::CheckStrictRoom(const NumaTarget& target, std::size_t bytes) const {
  if (target.policy != NumaPolicy::kStrict || target.nodes.empty()) return OkStatus();
  std::int64_t available = 0;
  for (int node : target.nodes) {
    const auto on_node = AvailableOnNode(options_.roots, node);
    if (!on_node) return OkStatus();  // unknown does not limit
    available += on_node->value();
  }
  if (available >= static_cast<std::int64_t>(bytes)) return OkStatus();
  return ResourceExhaustedError(
      NamesOf(target.nodes), target.nodes.size() == 1 ? " has " : " have ", available,
      " bytes to give, by ", options_.roots.sys, "/devices/system/node, and ", bytes,
      " are needed there; free memory on it, or use "
      "NumaPolicy::kPreferred");
}

Status NumaPlacer::Bind(const NumaTarget& target, PlacedMapping& mapping) const {
  if (target.nodes.empty() || !capabilities_.bind.is_allowed) return OkStatus();
  struct Part {
    std::size_t end;
    int mode;
    NodeSet nodes;
  };
  std::vector<Part> parts;
  if (target.policy == NumaPolicy::kWeighted) {
    const auto ends =
        SplitByWeight(mapping.bytes, target.weights, SplitGranule(mapping.bytes, mapping.pages));
    for (std::size_t i = 0; i < ends.size(); ++i) {
      parts.push_back({ends[i], MPOL_PREFERRED, {target.nodes[static_cast<int>(i)]}});
    }
  } else {
    const int mode = target.policy == NumaPolicy::kStrict       ? MPOL_BIND
                     : target.policy == NumaPolicy::kInterleave ? MPOL_INTERLEAVE
                     : target.nodes.size() == 1                 ? MPOL_PREFERRED
                                                                : MPOL_PREFERRED_MANY;
    parts.push_back({mapping.bytes, mode, target.nodes});
  }
  std::size_t begin = 0;
  for (const Part& part : parts) {
    if (part.end == begin) continue;
    std::byte* const data = mapping.data + begin;
    int error = ops_.Bind(data, part.end - begin, part.mode, part.nodes);
    if (error == EINVAL && part.mode == MPOL_PREFERRED_MANY) {  // before Linux 5.15
      error = ops_.Bind(data, part.end - begin, MPOL_PREFERRED, {part.nodes.front()});
    }
    if (error != 0) {
      // Forbidden since the probe, or the node went away. The first touch does what it can, and the
      // report tells; but strict memory must not be taken from a node that it was not asked from.
      if (target.policy != NumaPolicy::kStrict || IsForbidden(error)) return OkStatus();
      return ErrnoError(error, "binding ", mapping.bytes, " bytes to ", NamesOf(target.nodes));
    }
    ++mapping.bindings;
    begin = part.end;
  }
  mapping.is_bound = true;
  return OkStatus();
}

StatusOr<PlacedMapping> NumaPlacer::Map(const NumaTarget& target, std::size_t bytes) const {
  PlacedMapping mapping{.pages = options_.pages};
  if (mapping.pages == PageKind::kReservedHuge) {
    const std::size_t whole = RoundTo(bytes, kHugePage);
    Status status = CheckHugePages(target, whole);
    if (status.ok()) {
      mapping.data = static_cast<std::byte*>(ops_.Map(whole, kHugePage, true));
      if (mapping.data == nullptr) {
        status = ResourceExhaustedError(
            "mapping ", whole / kHugePage,
            " reserved huge pages of 2 MiB: ", std::generic_category().message(errno),
            "; other mappings have claimed them (HugePages_Rsvd in /proc/meminfo)");
      }
      mapping.bytes = whole;
    }
    if (!status.ok() && options_.shortage == HugePageShortage::kFail) return status;
    if (!status.ok()) {
      mapping.pages = PageKind::kTransparentHuge;
      mapping.was_short = true;
    }
  }
  if (mapping.data == nullptr) {
    mapping.bytes = RoundTo(bytes, kPage);
    AIT_RETURN_IF_ERROR(CheckRoom(options_.roots, mapping.bytes));
    AIT_RETURN_IF_ERROR(CheckStrictRoom(target, mapping.bytes));
    mapping.data = static_cast<std::byte*>(ops_.Map(mapping.bytes, kHugePage, false));
    if (mapping.data == nullptr) {
      return ResourceExhaustedError("mapping ", mapping.bytes,
                                    " bytes: ", std::generic_category().message(errno),
                                    "; the address space (ulimit -v), the system's commit limit "
                                    "or its number of mappings (vm.max_map_count) is used up");
    }
    // Advice: where the system has no huge pages, small ones do.
    (void)madvise(mapping.data, mapping.bytes,
                  mapping.pages == PageKind::kSmall ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
  const Status bound = Bind(target, mapping);
  if (!bound.ok()) {
    Unmap(mapping);
    return bound;
  }
  return mapping;
}

Status NumaPlacer::Touch(const NumaTarget& target, std::size_t end, PlacedMapping& mapping) const {
  if (options_.first_touch == FirstTouch::kByUser && target.policy != NumaPolicy::kStrict &&
      mapping.pages != PageKind::kReservedHuge) {
    return OkStatus();
  }
  // Ahead, so that few allocations call the system. Where there is no room for that, just enough.
  const Status status =
      TouchUpTo(target, std::min(RoundTo(end, kHugePage), mapping.bytes), mapping);
  if (mapping.pages != PageKind::kSmall || status.code() != StatusCode::kResourceExhausted) {
    return status;
  }
  return TouchUpTo(target, std::min(RoundTo(end, kPage), mapping.bytes), mapping);
}

Status NumaPlacer::TouchUpTo(const NumaTarget& target, std::size_t end,
                             PlacedMapping& mapping) const {
  while (mapping.touched < end) {
    const std::size_t most = target.policy == NumaPolicy::kStrict ? kStrictPiece : end;
    const Range range(mapping.data + mapping.touched, std::min(end - mapping.touched, most));
    if (mapping.pages != PageKind::kReservedHuge) {
      AIT_RETURN_IF_ERROR(CheckStrictRoom(target, range.second));
    }
    AIT_RETURN_IF_ERROR(mapping.is_bound || target.nodes.empty()
                            ? Populate(target, range, mapping.pages)
                            : TouchOnNodes(target, range, mapping));
    mapping.touched += range.second;
  }
  return OkStatus();
}

Status NumaPlacer::Populate(const NumaTarget& target, const Range& range, PageKind pages) const {
  // One small page is a fault either way; a lack of it is no error that a kernel could return.
  int error = 0;
  if (range.second <= kPage && pages == PageKind::kSmall) {
    ops_.Touch(range.first, range.second);
  } else {
    error = ops_.Populate(range.first, range.second);
  }
  if (error == 0) return OkStatus();
  if (error == EINVAL) {
    ops_.Touch(range.first, range.second);
    return OkStatus();
  }
  return ResourceExhaustedError(
      "touching ", range.second, " bytes", target.nodes.empty() ? "" : " of ",
      target.nodes.empty() ? "" : NamesOf(target.nodes), ": ",
      std::generic_category().message(error),
      pages == PageKind::kReservedHuge
          ? "; the node ran out of reserved huge pages (free_hugepages in /sys)"
          : "; the node, the cgroup or the machine ran out of memory");
}

/// Sorts the pages of a range by the node that they shall lie on, and touches them from there.
Status NumaPlacer::TouchOnNodes(const NumaTarget& target, const Range& range,
                                const PlacedMapping& mapping) const {
  const auto nodes = static_cast<std::size_t>(target.nodes.size());
  const auto first = static_cast<std::size_t>(range.first - mapping.data);
  const std::size_t last = first + range.second;
  std::vector<std::vector<Range>> ranges(nodes);
  const auto add = [&](std::size_t node, std::size_t from, std::size_t to) {
    from = std::max(from, first);
    to = std::min(to, last);
    if (from < to) ranges[node].emplace_back(mapping.data + from, to - from);
  };
  if (target.policy == NumaPolicy::kInterleave) {
    const std::size_t unit = InterleaveUnit(mapping.pages);
    for (std::size_t at = first / unit * unit; at < last; at += unit) {
      add(at / unit % nodes, at, at + unit);
    }
  } else if (target.policy == NumaPolicy::kWeighted) {
    const auto ends =
        SplitByWeight(mapping.bytes, target.weights, SplitGranule(mapping.bytes, mapping.pages));
    for (std::size_t i = 0; i < nodes; ++i) add(i, i == 0 ? 0 : ends[i - 1], ends[i]);
  } else {
    add(0, first, last);
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    if (ranges[i].empty()) continue;
    AIT_RETURN_IF_ERROR(
        TouchFrom(target.nodes[static_cast<int>(i)], target, ranges[i], mapping.pages));
  }
  return OkStatus();
}

Status NumaPlacer::TouchFrom(int node, const NumaTarget& target, const std::vector<Range>& ranges,
                             PageKind pages) const {
  Status status;
  const auto touch = [&] {
    for (const Range& range : ranges) {
      if (status.ok()) status = Populate(target, range, pages);
    }
  };
  const auto cpus = nodes_.cpus.find(node);
  if (cpus != nodes_.cpus.end() && !cpus->second.empty() && ops_.RunOn(cpus->second, touch).ok()) {
    return status;
  }
  touch();  // from wherever this thread is
  if (!status.ok() || !capabilities_.move.is_allowed) return status;
  for (const auto& [data, bytes] : ranges) {
    std::vector<void*> addresses;
    for (std::size_t at = 0; at < bytes; at += kPage) addresses.push_back(data + at);
    std::vector<int> results(addresses.size());
    (void)ops_.Move(addresses, node, results);  // the report tells how far it went
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
