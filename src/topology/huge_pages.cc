// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/huge_pages.h"

#include "ait/topology/id_set.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {

using internal::ReadInteger;

HugePageState ReadHugePages(const SystemRoots& roots) {
  HugePageState state;
  const std::string nodes = roots.sys + "/devices/system/node";
  for (int node : internal::ReadIdSet(nodes + "/online").value_or(NodeSet())) {
    // Sizes of every architecture of Linux, in KiB.
    for (const std::int64_t kilobytes :
         {64, 512, 1024, 2048, 16384, 32768, 524288, 1048576, 2097152, 16777216}) {
      const std::string pool =
          StrCat(nodes, "/node", node, "/hugepages/hugepages-", kilobytes, "kB");
      const auto total = ReadInteger(pool + "/nr_hugepages");
      if (!total) continue;
      state.pools.push_back({.node = node,
                             .page = KiB(kilobytes),
                             .total = *total,
                             .free = ReadInteger(pool + "/free_hugepages").value_or(0)});
    }
  }
  // "always [madvise] never": the one in brackets is chosen.
  const std::string modes =
      internal::ReadLine(roots.sys + "/kernel/mm/transparent_hugepage/enabled").value_or("");
  const std::size_t open = modes.find('['), close = modes.find(']');
  if (open != std::string::npos && close != std::string::npos && close > open) {
    state.transparent = modes.substr(open + 1, close - open - 1);
  }
  return state;
}

}  // namespace ait::inline v0
