// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_HUGE_PAGES_H_
#define AIT_TOPOLOGY_HUGE_PAGES_H_

// Huge pages of the machine: those reserved on each node, and whether the kernel makes them up by
// itself (transparent huge pages).
//
//   const HugePageState state = ReadHugePages();
//   for (const HugePagePool& pool : state.pools) Print(pool.node, pool.page, pool.free);

#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/types.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

/// Pages of one size that are reserved on one node (`sysctl vm.nr_hugepages`).
struct HugePagePool {
  int node = 0;
  Bytes page{0};           // 2 MiB or 1 GiB on x86-64
  std::int64_t total = 0;  // pages
  std::int64_t free = 0;   // of those, pages that nobody has
};

struct HugePageState {
  std::vector<HugePagePool> pools;  // by node, then size; also pools of no pages
  std::string transparent;          // "always", "madvise" or "never"; "" if unknown
};

HugePageState ReadHugePages(const SystemRoots& roots = {});

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_HUGE_PAGES_H_
