// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_NUMA_H_
#define AIT_MEMORY_NUMA_H_

// Memory of this process on chosen NUMA nodes and in chosen pages, with a report of where it lies.
//
// Take it where a thread's data must be near to it (a loader, the optimizer's states, staging for a
// GPU), or spread over all nodes when every thread reads it. On a machine with one node it works
// the same and costs nothing more.
//
//   AIT_ASSIGN_OR_RETURN(auto memory, NumaResource::Create({.nodes = {1}}));
//   AIT_ASSIGN_OR_RETURN(void* block, memory->Allocate(bytes));
//   Print(memory->Verify(block, bytes).ToString());    // "verified: 1048576 bytes on node 1 (…"
//
// Blocks come from chunks that are mapped and bound once, so that there are few mappings. Pages are
// made to exist 2 MiB ahead of the blocks: a chunk that fills makes a system call so often, and an
// allocation from pages that exist none. A block above a quarter of a chunk is a mapping of its own.
// Freed memory is kept for reuse up to `max_cached`, and `Trim` gives it back.
//
// Where binding is forbidden, as in most containers, allocation works all the same: the calling
// thread binds itself for a moment to CPUs of the node and touches the pages first, which places
// them, and `Verify` reads back whether it did. docs/placement.md has the whole table.
//
// A forked child has a copy of all blocks, which lie where the kernel puts them when either side
// writes. Reserved huge pages are no memory to fork with: the copy needs as many free ones.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/types.h"
#include "ait/memory/placement.h"
#include "ait/memory/resource.h"
#include "ait/topology/id_set.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

enum class NumaPolicy {
  kPreferred,   ///< on the nodes, and when they are full elsewhere
  kStrict,      ///< on the nodes, and when they are full an error
  kInterleave,  ///< page by page over the nodes
  kWeighted,    ///< large blocks split, small ones dealt out, in proportion to `weights`
  kLocal,       ///< on the node that the allocating thread runs on
};

enum class PageKind {
  kSmall,            ///< 4 KiB
  kTransparentHuge,  ///< 2 MiB where the kernel finds them, else 4 KiB
  kReservedHuge,     ///< 2 MiB, reserved by the administrator on each node
};

/// What happens when a node has too few reserved huge pages.
enum class HugePageShortage {
  kFail,            ///< the error says how many are missing and the command that reserves them
  kUseTransparent,  ///< counted in NumaCounters::shortages
};

/// Who touches the pages of a block first.
enum class FirstTouch {
  kAtAllocation,  ///< Allocate does, so that a lack of memory is an error there
  /// The user does: pages that are never used cost nothing. The bound node still holds; where
  /// binding is forbidden the node is that of the thread that touches. Strict and reserved huge
  /// memory is touched at allocation all the same.
  kByUser,
};

struct NumaOptions {
  NumaPolicy policy = NumaPolicy::kPreferred;
  /// Ids of nodes with memory. Empty: for preferred and strict the node of the calling thread (or
  /// the nearest with memory); for the others all that this process may use, but those without CPUs
  /// (slow memory, or a GPU's), which are taken only when they are named. Local takes none.
  NodeSet nodes;
  std::vector<int> weights;  ///< of kWeighted, 1 to 1,000,000: one for each node, ascending by id
  PageKind pages = PageKind::kTransparentHuge;
  HugePageShortage shortage = HugePageShortage::kFail;
  FirstTouch first_touch = FirstTouch::kAtAllocation;
  Bytes chunk = MiB(64);      ///< at least 2 MiB; rounded up to such
  Bytes max_cached = GiB(1);  ///< freed memory that is kept, at most; below 1: none
  SystemRoots roots;          ///< where nodes, budgets and free pages are read
};

struct NumaCounters {
  Bytes mapped{0};         ///< all mappings
  Bytes used{0};           ///< blocks, each rounded up to kMinAlignment
  Bytes cached{0};         ///< mappings without a block, kept for reuse
  Bytes reserved_huge{0};  ///< the part of `mapped` that is reserved huge pages
  int mappings = 0;
  std::int64_t maps = 0;      ///< mappings made so far: a steady state makes none
  std::int64_t bindings = 0;  ///< calls of mbind that succeeded so far
  std::int64_t shortages =
      0;  ///< mappings that wanted reserved huge pages and got transparent ones
};

class NumaResource final : public MemoryResource {
 public:
  /// **Errors.** InvalidArgument: a node that does not exist or has no memory (the text names those
  /// that do), weights that do not fit the nodes, a chunk size out of range. FailedPrecondition: a
  /// node outside the cpuset of this process. NotFound: no CPU is found in /proc or /sys.
  static StatusOr<std::shared_ptr<NumaResource>> Create(const NumaOptions& options = {});
  /// All blocks have been given back.
  ~NumaResource() override;

  /// Such as "numa(preferred, node 1)".
  MemoryProperties properties() const override;
  /// The nodes that were asked for or chosen. Empty if the kernel does not tell of nodes.
  const NodeSet& nodes() const;
  /// What this process may do about placement, as probed when the resource was made.
  const NumaCapabilities& capabilities() const;
  NumaCounters counters() const;

  /// Where `bytes` bytes of a block of this resource lie, against what was asked for.
  PlacementReport Verify(const void* block, std::size_t bytes) const;
  /// The same for all memory that the resource holds, cached or in blocks.
  PlacementReport Verify() const;

  /// Gives chunks and large mappings without a block back to the system; returns their bytes.
  Bytes Trim();

 private:
  friend struct NumaResourceMaker;
  class Impl;
  explicit NumaResource(std::unique_ptr<Impl> impl);
  /// **Errors.** ResourceExhausted: the nodes (strict), the budget or the address space have no
  /// room, or reserved huge pages are missing.
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  const std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_NUMA_H_
