// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_NUMA_OPS_INTERNAL_H_
#define AIT_MEMORY_NUMA_OPS_INTERNAL_H_

// The system calls behind placement, as one table that tests replace by a machine of their own.
//
// The calls are made directly and not through libnuma, whose functions return memory that is not
// placed and print to stderr when binding fails, read the allowed nodes once per process, and in
// the version of Debian 12 take a container that forbids every call for one that allows them.
// Four calls and /sys are all it takes.

#include <linux/mempolicy.h>

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/memory/placement.h"
#include "ait/topology/id_set.h"

namespace ait::inline v0::internal {

/// What a call returns is 0 or an errno, unless it says otherwise.
class NumaOps {
 public:
  virtual ~NumaOps() = default;

  /// mbind: the policy `mode` (MPOL_…) over `nodes` for pages that are touched from now on.
  virtual int Bind(void* address, std::size_t bytes, int mode, const NodeSet& nodes);

  /// move_pages without targets: into `status` the node of each page, or an errno below zero.
  virtual int Query(std::span<void* const> pages, std::span<int> status);

  /// move_pages: moves pages that exist to `node`; `status` as of Query.
  virtual int Move(std::span<void* const> pages, int node, std::span<int> status);

  /// Whether get_mempolicy and set_mempolicy can be called; changes nothing.
  virtual int ProbeThreadPolicy();

  /// Private memory, readable and writable; nullptr and errno if there is none.
  virtual void* Map(std::size_t bytes, std::size_t alignment, bool reserved_huge_pages);
  virtual void Unmap(void* address, std::size_t bytes);

  /// Makes every page exist. EINVAL: the kernel (before Linux 5.14) cannot.
  virtual int Populate(void* address, std::size_t bytes);

  /// Writes to every page: the same by hand. A lack of memory is a signal.
  virtual void Touch(void* address, std::size_t bytes);

  /// Binds the calling thread to `cpus` for the length of a call.
  virtual Status RunOn(const CpuSet& cpus, const std::function<void()>& function);

  /// The NUMA node that the calling thread runs on; -1 if unknown. Not a system call.
  virtual int CurrentNode();

  /// The calls themselves.
  static NumaOps& System();
};

NumaCapabilities ProbeNuma(NumaOps& ops);
PlacementReport VerifyPlacement(NumaOps& ops, const void* block, std::size_t bytes,
                                const PlacementExpectation& expected, const SystemRoots& roots);

/// What is known of a range of memory, before it is judged.
struct PageCount {
  std::map<int, Bytes> by_node;
  Bytes untouched{0};
  Bytes unknown{0};
  bool is_exact = true;

  void Add(const PageCount& other);
};

/// Compares what was counted with what was expected: fills verdict and reason of `report`.
void JudgePlacement(const PlacementExpectation& expected, PlacementReport& report);

/// Adds the report of another part of the memory to `all`, which begins empty: the sums, with the
/// verdict, reason and source of the worst part.
void AddReport(const PlacementReport& part, PlacementReport& all);

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_NUMA_OPS_INTERNAL_H_
