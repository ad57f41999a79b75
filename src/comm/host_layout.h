// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_HOST_LAYOUT_H_
#define AIT_COMM_HOST_LAYOUT_H_

// Which ranks share a host, and which of them talk to other hosts.
//
// Local numbers 0 to width - 1, which exist on every host, are the columns: the ranks of one column
// talk to each other. What belongs to a rank outside the columns is carried by one inside.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ait::inline v0::internal {

struct HostLayout {
  /// Ranks by host: hosts in the order of their lowest rank, ranks ascending.
  std::vector<std::vector<int>> hosts;
  std::vector<int> host_of;   // by rank: index in `hosts`
  std::vector<int> local_of;  // by rank: index in its host
  int width = 0;              // columns: the least number of ranks of a host

  /// `names[r]` tells the host of rank r; equal ones are one host. At least one rank.
  static HostLayout Of(std::span<const int> names);

  int size() const { return static_cast<int>(host_of.size()); }
  int host_count() const { return static_cast<int>(hosts.size()); }
  int ColumnOf(int rank) const { return local_of[static_cast<std::size_t>(rank)] % width; }
};

/// Parts of all ranks, one after the other in the order column, host, local number: the section of
/// a column is one range, and in it those of a host are one.
struct ColumnOrder {
  std::vector<int> ranks;                          // in that order
  std::vector<std::int64_t> offset;                // by rank
  std::vector<std::int64_t> begin;                 // by column, with the end of the last
  std::vector<std::vector<std::int64_t>> of_host;  // by column and host: elements

  /// `count(r)` is the number of elements of rank r.
  static ColumnOrder Of(const HostLayout& layout, const std::function<std::int64_t(int)>& count);

  std::int64_t Section(int column) const {
    const auto c = static_cast<std::size_t>(column);
    return begin[c + 1] - begin[c];
  }
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_HOST_LAYOUT_H_
