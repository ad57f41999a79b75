// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/placement.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"
#include "memory/mapping_internal.h"
#include "memory/numa_ops_internal.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {
namespace {

using internal::kHugePage;
using internal::kPage;
using internal::NumaOps;
using internal::PageCount;

Bytes Signed(std::size_t bytes) { return Bytes(static_cast<std::int64_t>(bytes)); }
void Add(Bytes& sum, Bytes bytes) { sum = Bytes(sum.value() + bytes.value()); }

CallAccess AccessOf(const char* call, int error) {
  if (error == 0) return {.is_allowed = true};
  std::string reason = StrCat(call, ": ", std::generic_category().message(error));
  if (error == EPERM || error == EACCES) {
    reason +=
        "; a seccomp filter forbids it, such as the default one of containers without "
        "CAP_SYS_NICE";
  } else if (error == ENOSYS) {
    reason += "; the kernel has no NUMA, or a filter hides the call";
  }
  return {.is_allowed = false, .reason = std::move(reason)};
}

/// The part of the page at `page` that lies in [begin, end).
Bytes Overlap(std::uintptr_t page, std::uintptr_t size, std::uintptr_t begin, std::uintptr_t end) {
  return Signed(std::min(page + size, end) - std::max(page, begin));
}

/// Counts by move_pages; the errno if that cannot be called.
int CountByQuery(NumaOps& ops, std::uintptr_t begin, std::uintptr_t end, PageCount& count) {
  constexpr std::size_t kBatch = 8192;
  std::vector<void*> pages;
  std::vector<int> status;
  for (std::uintptr_t page = begin / kPage * kPage; page < end;) {
    pages.clear();
    for (; page < end && pages.size() < kBatch; page += kPage) {
      pages.push_back(reinterpret_cast<void*>(page));
    }
    status.assign(pages.size(), -EFAULT);
    if (const int error = ops.Query(pages, status); error != 0) return error;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const Bytes bytes = Overlap(reinterpret_cast<std::uintptr_t>(pages[i]), kPage, begin, end);
      if (status[i] >= 0) {
        Add(count.by_node[status[i]], bytes);
      } else {
        // -ENOENT: no page; -EFAULT: the common page of zeros.
        Add(status[i] == -ENOENT || status[i] == -EFAULT ? count.untouched : count.unknown, bytes);
      }
    }
  }
  return 0;
}

std::optional<std::uintptr_t> ParseHex(std::string_view text) {
  std::uintptr_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What numa_maps says of one mapping: "7f0c... default anon=3 dirty=3 N0=2 N1=1
/// kernelpagesize_kB=4".
PageCount CountOfMapping(std::string_view line, std::size_t mapping_bytes) {
  PageCount count;
  std::int64_t page_kilobytes = 4;
  const std::vector<std::string_view> words = internal::Words(line);
  for (const std::string_view word : words) {
    constexpr std::string_view kPageSize = "kernelpagesize_kB=";
    if (!word.starts_with(kPageSize)) continue;
    page_kilobytes = internal::ParseNumber<std::int64_t>(word.substr(kPageSize.size())).value_or(4);
  }
  std::int64_t rest = static_cast<std::int64_t>(mapping_bytes);
  for (const std::string_view word : words) {
    const std::size_t equal = word.find('=');
    if (!word.starts_with('N') || equal == std::string_view::npos) continue;
    const auto node = internal::ParseNumber<int>(word.substr(1, equal - 1));
    const auto pages = internal::ParseNumber<std::int64_t>(word.substr(equal + 1));
    if (!node || !pages) continue;
    count.by_node[*node] = KiB(*pages * page_kilobytes);
    rest -= count.by_node[*node].value();
  }
  count.untouched = Bytes(std::max<std::int64_t>(rest, 0));
  return count;
}

/// Counts pages that exist by pagemap: on `node`, or where that is none as unknown. Pages that may be
/// the common one of zeros are unknown too, and so is all if the file cannot be read.
PageCount CountByPagemap(const SystemRoots& roots, std::optional<int> node, std::uintptr_t begin,
                         std::uintptr_t end) {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  constexpr std::uint64_t kFile = std::uint64_t{1} << 61;       // or shared memory
  constexpr std::uint64_t kExclusive = std::uint64_t{1} << 56;  // in this process alone
  const std::uintptr_t first = begin / kPage;
  std::vector<std::uint64_t> entries((end - 1) / kPage - first + 1);
  // Whole entries alone can be read, which a stream does not heed.
  const internal::FileDescriptor file(
      open((roots.proc + "/self/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  const auto wanted = static_cast<ssize_t>(entries.size() * sizeof(std::uint64_t));
  const bool is_read = pread(file.get(), entries.data(), static_cast<std::size_t>(wanted),
                             static_cast<off_t>(first * sizeof(std::uint64_t))) == wanted;
  PageCount count;
  if (!is_read) {
    count.unknown = Signed(end - begin);
    count.is_exact = false;
    return count;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Bytes bytes = Overlap((first + i) * kPage, kPage, begin, end);
    if ((entries[i] & kPresent) == 0) {
      Add(count.untouched, bytes);
    } else if (node && (entries[i] & (kFile | kExclusive)) != 0) {
      Add(count.by_node[*node], bytes);
    } else {
      Add(count.unknown, bytes);
      count.is_exact = false;
    }
  }
  return count;
}

/// What is known of the part [begin, end) of a mapping whose count is `whole`: numa_maps does not
/// say which pages of it exist.
PageCount PartOf(const PageCount& whole, const SystemRoots& roots, std::uintptr_t begin,
                 std::uintptr_t end) {
  const Bytes bytes = Signed(end - begin);
  if (whole.by_node.empty()) return {.untouched = bytes};
  const int node = whole.by_node.begin()->first;
  const bool is_one = whole.by_node.size() == 1;
  if (is_one && whole.untouched == Bytes(0)) return {.by_node = {{node, bytes}}};
  return CountByPagemap(roots, is_one ? std::optional(node) : std::nullopt, begin, end);
}

/// Counts by numa_maps. False if it cannot be read.
bool CountByMaps(const SystemRoots& roots, std::uintptr_t begin, std::uintptr_t end,
                 PageCount& count) {
  const auto numa_maps = internal::ReadKernelFile(roots.proc + "/self/numa_maps");
  const auto maps = internal::ReadKernelFile(roots.proc + "/self/maps");
  if (!numa_maps || !maps) return false;
  std::map<std::uintptr_t, std::string_view> line_of;
  for (const std::string_view line : internal::Split(*numa_maps, '\n')) {
    if (const auto start = ParseHex(line.substr(0, line.find(' ')))) line_of.emplace(*start, line);
  }
  std::uintptr_t seen = 0;
  for (const std::string_view line : internal::Split(*maps, '\n')) {
    const std::size_t dash = line.find('-');
    if (dash == std::string_view::npos) continue;
    const auto from = ParseHex(line.substr(0, dash));
    const auto to = ParseHex(line.substr(dash + 1, line.find(' ') - dash - 1));
    if (!from || !to || *to <= begin || *from >= end) continue;
    const Bytes bytes = Overlap(*from, *to - *from, begin, end);
    seen += static_cast<std::uintptr_t>(bytes.value());
    const auto found = line_of.find(*from);
    if (found == line_of.end()) {
      count.Add({.unknown = bytes, .is_exact = false});
    } else {
      const PageCount whole = CountOfMapping(found->second, *to - *from);
      const bool is_all = *from >= begin && *to <= end;
      count.Add(is_all ? whole : PartOf(whole, roots, std::max(*from, begin), std::min(*to, end)));
    }
  }
  Add(count.unknown, Signed(end - begin - std::min(seen, end - begin)));
  return true;
}

std::string Nodes(const NodeSet& nodes) {
  return StrCat(nodes.size() == 1 ? "node " : "nodes ", nodes.ToString());
}

/// What is wrong with the shares, or nothing.
std::string WrongShares(const PlacementExpectation& expected, const PlacementReport& report) {
  const auto weights = std::accumulate(expected.weights.begin(), expected.weights.end(), 0.0);
  if (static_cast<int>(expected.weights.size()) != expected.nodes.size() || weights <= 0) return "";
  double touched = 0;
  for (const auto& [node, bytes] : report.by_node) touched += static_cast<double>(bytes.value());
  const double allowed = touched / 50 + static_cast<double>(kHugePage);
  for (int i = 0; i < expected.nodes.size(); ++i) {
    const auto found = report.by_node.find(expected.nodes[i]);
    const double bytes =
        found == report.by_node.end() ? 0 : static_cast<double>(found->second.value());
    const double share = touched * expected.weights[static_cast<std::size_t>(i)] / weights;
    if (bytes < share - allowed || bytes > share + allowed) {
      return StrCat(static_cast<std::int64_t>(bytes), " bytes lie on node ", expected.nodes[i],
                    ", its share is ", static_cast<std::int64_t>(share));
    }
  }
  return "";
}

}  // namespace

namespace internal {

void PageCount::Add(const PageCount& other) {
  for (const auto& [node, bytes] : other.by_node) ait::Add(by_node[node], bytes);
  ait::Add(untouched, other.untouched);
  ait::Add(unknown, other.unknown);
  is_exact = is_exact && other.is_exact;
}

void JudgePlacement(const PlacementExpectation& expected, PlacementReport& report) {
  const auto judge = [&](PlacementVerdict verdict, std::string reason) {
    report.verdict = verdict;
    report.reason = std::move(reason);
  };
  std::int64_t elsewhere = 0;
  NodeSet other_nodes;
  for (const auto& [node, bytes] : report.by_node) {
    if (expected.nodes.contains(node) || bytes == Bytes(0)) continue;
    elsewhere += bytes.value();
    other_nodes.Add(node);
  }
  if (expected.nodes.empty()) {
    return judge(PlacementVerdict::kUnverified, "no node was asked for");
  }
  if (elsewhere > 0) {
    return judge(PlacementVerdict::kWrong, StrCat(elsewhere, " bytes lie on ", Nodes(other_nodes),
                                                  ", not on ", Nodes(expected.nodes)));
  }
  if (report.unknown > Bytes(0)) {
    return judge(PlacementVerdict::kUnverified,
                 StrCat("the node of ", report.unknown, " bytes could not be told"));
  }
  if (report.by_node.empty()) {
    return judge(PlacementVerdict::kUnverified, "no page has been touched yet");
  }
  if (std::string wrong = WrongShares(expected, report); !wrong.empty()) {
    return judge(PlacementVerdict::kWrong, std::move(wrong));
  }
  judge(PlacementVerdict::kVerified, "");
}

void AddReport(const PlacementReport& part, PlacementReport& all) {
  PageCount count = {.by_node = all.by_node, .untouched = all.untouched, .unknown = all.unknown};
  count.Add({part.by_node, part.untouched, part.unknown});
  const bool is_first = all.source.empty();
  const bool is_worse =
      part.verdict == PlacementVerdict::kWrong ||
      (part.verdict == PlacementVerdict::kUnverified && all.verdict == PlacementVerdict::kVerified);
  if (is_first || (is_worse && all.verdict != PlacementVerdict::kWrong)) all = part;
  all.by_node = std::move(count.by_node);
  all.untouched = count.untouched;
  all.unknown = count.unknown;
}

NumaCapabilities ProbeNuma(NumaOps& ops) {
  NumaCapabilities capabilities;
  capabilities.thread_policy = AccessOf("get_mempolicy", ops.ProbeThreadPolicy());
  void* const scratch = ops.Map(kPage, kPage, false);
  if (scratch == nullptr) {
    for (CallAccess* access : {&capabilities.bind, &capabilities.move, &capabilities.query}) {
      *access = AccessOf("mmap", errno);
    }
    return capabilities;
  }
  // On the node of the thread, where the page would lie anyway.
  capabilities.bind = AccessOf("mbind", ops.Bind(scratch, kPage, MPOL_PREFERRED, {}));
  ops.Touch(scratch, kPage);
  const std::array<void*, 1> pages = {scratch};
  std::array<int, 1> status = {-1};
  capabilities.query = AccessOf("move_pages", ops.Query(pages, status));
  const int node = status[0] >= 0 ? status[0] : std::max(ops.CurrentNode(), 0);
  capabilities.move = AccessOf("move_pages", ops.Move(pages, node, status));
  ops.Unmap(scratch, kPage);
  return capabilities;
}

PlacementReport VerifyPlacement(NumaOps& ops, const void* block, std::size_t bytes,
                                const PlacementExpectation& expected, const SystemRoots& roots) {
  PlacementReport report;
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  PageCount count;
  if (const int error = CountByQuery(ops, begin, begin + bytes, count); error == 0) {
    report.source = "move_pages";
    // Linux 6.1 to 6.4 hide pages that NUMA balancing samples at the moment.
    PageCount maps;
    if (count.untouched > Bytes(0) && CountByMaps(roots, begin, begin + bytes, maps) &&
        maps.is_exact && maps.untouched < count.untouched) {
      report.source += StrCat(" and ", roots.proc, "/self/numa_maps");
      count = std::move(maps);
    }
  } else {
    count = {};
    if (CountByMaps(roots, begin, begin + bytes, count)) {
      report.source = roots.proc + "/self/numa_maps";
    } else {
      report.unknown = Signed(bytes);
      report.reason = StrCat(AccessOf("move_pages", error).reason, "; and ", roots.proc,
                             "/self/numa_maps cannot be read");
      return report;
    }
  }
  report.by_node = std::move(count.by_node);
  report.untouched = count.untouched;
  report.unknown = count.unknown;
  JudgePlacement(expected, report);
  return report;
}

}  // namespace internal

std::string NumaCapabilities::ToString() const {
  const auto part = [](const char* name, const CallAccess& access) {
    return StrCat(name, access.is_allowed ? ": allowed" : ": forbidden (", access.reason,
                  access.is_allowed ? "" : ")");
  };
  return StrCat(part("bind", bind), "; ", part("move", move), "; ", part("query", query), "; ",
                part("thread policy", thread_policy));
}

NumaCapabilities ProbeNuma() { return internal::ProbeNuma(NumaOps::System()); }

std::string ToString(PlacementVerdict verdict) {
  switch (verdict) {
    case PlacementVerdict::kVerified:
      return "verified";
    case PlacementVerdict::kUnverified:
      return "unverified";
    case PlacementVerdict::kWrong:
      return "wrong";
  }
  return "unknown";
}

std::string PlacementReport::ToString() const {
  std::string text = StrCat(ait::ToString(verdict), ": ");
  const char* separator = "";
  for (const auto& [node, bytes] : by_node) {
    text += StrCat(separator, bytes, " bytes on node ", node);
    separator = ", ";
  }
  if (untouched > Bytes(0)) {
    text += StrCat(separator, untouched, " bytes not touched yet");
    separator = ", ";
  }
  if (unknown > Bytes(0)) {
    text += StrCat(separator, unknown, " bytes unknown");
    separator = ", ";
  }
  if (!source.empty()) text += StrCat(*separator == '\0' ? "(by " : " (by ", source, ")");
  if (!reason.empty()) text += StrCat(": ", reason);
  return text;
}

PlacementReport VerifyPlacement(const void* block, std::size_t bytes,
                                const PlacementExpectation& expected, const SystemRoots& roots) {
  return internal::VerifyPlacement(NumaOps::System(), block, bytes, expected, roots);
}

}  // namespace ait::inline v0
