// SPDX-License-Identifier: Apache-2.0
#include "comm/host_layout.h"

#include <algorithm>
#include <map>

namespace ait::inline v0::internal {

HostLayout HostLayout::Of(std::span<const int> names) {
  HostLayout layout;
  std::map<int, int> found;  // name to index
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const auto [host, is_new] = found.try_emplace(names[rank], layout.host_count());
    if (is_new) layout.hosts.emplace_back();
    auto& ranks = layout.hosts[static_cast<std::size_t>(host->second)];
    layout.host_of.push_back(host->second);
    layout.local_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  std::size_t width = names.size();
  for (const auto& ranks : layout.hosts) width = std::min(width, ranks.size());
  layout.width = static_cast<int>(width);
  return layout;
}

ColumnOrder ColumnOrder::Of(const HostLayout& layout,
                            const std::function<std::int64_t(int)>& count) {
  ColumnOrder order;
  order.offset.resize(layout.host_of.size());
  std::int64_t at = 0;
  for (int column = 0; column < layout.width; ++column) {
    order.begin.push_back(at);
    auto& of_host = order.of_host.emplace_back();
    for (const std::vector<int>& host : layout.hosts) {
      const std::int64_t before = at;
      for (std::size_t local = static_cast<std::size_t>(column); local < host.size();
           local += static_cast<std::size_t>(layout.width)) {
        const int rank = host[local];
        order.ranks.push_back(rank);
        order.offset[static_cast<std::size_t>(rank)] = at;
        at += count(rank);
      }
      of_host.push_back(at - before);
    }
  }
  order.begin.push_back(at);
  return order;
}

}  // namespace ait::inline v0::internal
