// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_NUMA_PLACER_INTERNAL_H_
#define AIT_MEMORY_NUMA_PLACER_INTERNAL_H_

// Maps memory and puts its pages on nodes: by a policy of the mapping, or where that is forbidden by
// touching the pages from CPUs of the node.

#include <cstddef>
#include <utility>
#include <vector>

#include "memory/numa_nodes_internal.h"
#include "memory/numa_ops_internal.h"

namespace ait::inline v0::internal {

/// Where a mapping shall lie.
struct NumaTarget {
  NumaPolicy policy = NumaPolicy::kPreferred;  // not kLocal: that is preferred, node by node
  NodeSet nodes;                               // empty: anywhere
  std::vector<int> weights;                    // of kWeighted

  /// What the pages of a mapping are held to.
  PlacementExpectation expectation() const;
};

/// A mapping, private to this process.
struct PlacedMapping {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  PageKind pages = PageKind::kSmall;
  bool is_bound = false;    // else the first touch decides
  bool was_short = false;   // wanted reserved huge pages
  int bindings = 0;         // calls that bound it
  std::size_t touched = 0;  // all pages before it exist
};

class NumaPlacer {
 public:
  NumaPlacer(NumaOps& ops, const NumaOptions& options, NumaNodes nodes)
      : ops_(ops), options_(options), nodes_(std::move(nodes)), capabilities_(ProbeNuma(ops)) {}

  const NumaNodes& nodes() const { return nodes_; }
  const NumaCapabilities& capabilities() const { return capabilities_; }

  /// Maps `bytes` bytes, rounded up to pages, and binds them; the pages do not exist yet.
  /// **Errors.** ResourceExhausted.
  StatusOr<PlacedMapping> Map(const NumaTarget& target, std::size_t bytes) const;

  /// Makes the pages before `end` exist on their nodes, as far as FirstTouch wants it.
  /// **Errors.** ResourceExhausted.
  Status Touch(const NumaTarget& target, std::size_t end, PlacedMapping& mapping) const;

  void Unmap(const PlacedMapping& mapping) const { ops_.Unmap(mapping.data, mapping.bytes); }

 private:
  using Range = std::pair<std::byte*, std::size_t>;

  Status CheckHugePages(const NumaTarget& target, std::size_t bytes) const;
  Status CheckStrictRoom(const NumaTarget& target, std::size_t bytes) const;
  Status Bind(const NumaTarget& target, PlacedMapping& mapping) const;
  Status TouchUpTo(const NumaTarget& target, std::size_t end, PlacedMapping& mapping) const;
  Status Populate(const NumaTarget& target, const Range& range, PageKind pages) const;
  Status TouchOnNodes(const NumaTarget& target, const Range& range,
                      const PlacedMapping& mapping) const;
  Status TouchFrom(int node, const NumaTarget& target, const std::vector<Range>& ranges,
                   PageKind pages) const;

  NumaOps& ops_;
  const NumaOptions& options_;
  const NumaNodes nodes_;
  const NumaCapabilities capabilities_;
};

/// Divides [0, bytes) by weight at multiples of `granule`: the end of each part.
std::vector<std::size_t> SplitByWeight(std::size_t bytes, const std::vector<int>& weights,
                                       std::size_t granule);

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_NUMA_PLACER_INTERNAL_H_
