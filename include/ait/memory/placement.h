// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_PLACEMENT_H_
#define AIT_MEMORY_PLACEMENT_H_

// On which NUMA nodes the pages of a block lie, read back from the kernel and never assumed.
//
// A call that places memory may succeed and do nothing: the policy acts when a page is touched
// first, a full node gives way to another, and most containers forbid the calls altogether. So a
// placement is one of three things: verified, unverified (with the reason) or wrong (with the bytes
// of each node).
//
//   const PlacementReport report = VerifyPlacement(block, bytes, {.nodes = {1}});
//   if (report.verdict == PlacementVerdict::kWrong) Print(report.ToString());
//
// `NumaResource` ("numa.h") reports of its own blocks; this works on any memory of this process.
// **Thread-safety.** All of it may be called from any thread.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "ait/base/types.h"
#include "ait/topology/id_set.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

/// Whether the kernel, or what stands before it, lets this process make a call.
struct CallAccess {
  bool is_allowed = false;
  std::string reason;  // if not: "mbind: Operation not permitted", and what mostly forbids it
};

/// What this process may do about placement. Docker's and containerd's default profiles forbid all
/// four to a container that has not CAP_SYS_NICE.
struct NumaCapabilities {
  CallAccess bind;           // mbind: say on which nodes a range of memory shall lie
  CallAccess move;           // move_pages with targets: move pages that exist
  CallAccess query;          // move_pages without: read on which node each page lies
  CallAccess thread_policy;  // get_mempolicy and set_mempolicy: the policy of a thread

  /// "bind: allowed; move: …", on one line.
  std::string ToString() const;
};

/// Tries each call on a page of its own, without lasting effect. What it finds holds until a filter
/// is put on the calling thread. **Cost.** About 20 µs: call it once and keep the value.
NumaCapabilities ProbeNuma();

/// Where a block shall lie.
struct PlacementExpectation {
  NodeSet nodes;             // empty: nothing is expected, so that nothing is wrong
  std::vector<int> weights;  // the share of each node, ascending by id; empty: any division
};

enum class PlacementVerdict {
  kVerified,    // every page that exists lies where it should
  kUnverified,  // it could not be read, no page exists yet, or nothing was expected
  kWrong,       // bytes lie elsewhere, or the shares are wrong
};

/// "verified", "unverified" or "wrong".
std::string ToString(PlacementVerdict verdict);

struct PlacementReport {
  PlacementVerdict verdict = PlacementVerdict::kUnverified;
  std::string reason;            // of unverified and wrong; empty if verified
  std::string source;            // "move_pages", "/proc/self/numa_maps"; empty if nothing was read
  std::map<int, Bytes> by_node;  // node to bytes that lie there
  Bytes untouched{0};            // no page yet, or the common page of zeros
  Bytes unknown{0};              // pages whose node could not be told

  /// "verified: 4194304 bytes on node 1 (by move_pages)".
  std::string ToString() const;
};

/// Reads the node of every page that `bytes` bytes at `block` reach into, by move_pages; where that
/// is forbidden by /proc/self/numa_maps, which tells of whole mappings: a part of one whose pages lie
/// on several nodes is then unknown, and of one with pages on a single node counted as touched as
/// far as those go. Shares are right within 2 % of the block and one huge
/// page for each node. **Cost.** About 25 ms a GiB.
PlacementReport VerifyPlacement(const void* block, std::size_t bytes,
                                const PlacementExpectation& expected,
                                const SystemRoots& roots = {});

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_PLACEMENT_H_
