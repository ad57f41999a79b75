// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_ARENA_PLACER_INTERNAL_H_
#define AIT_MEMORY_ARENA_PLACER_INTERNAL_H_

// Puts parts of a shared arena on NUMA nodes. A policy on a shared mapping of a memory file belongs
// to the file: pages that any process reserves follow it.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ait/base/status.h"
#include "ait/memory/placement.h"
#include "ait/memory/shared_arena.h"
#include "memory/numa_nodes_internal.h"
#include "memory/numa_ops_internal.h"

namespace ait::inline v0 {
namespace internal {

/// **Thread-safety.** Under the mutex of the arena.
class ArenaPlacer {
 public:
  ArenaPlacer(NumaOps& ops, SystemRoots roots) : ops_(ops), roots_(std::move(roots)) {}

  /// Pages of the range that do not exist yet shall lie on `node`. Where binding is forbidden,
  /// Reserve sees to it. **Errors.** As of NumaOptions::nodes.
  Status Prefer(std::byte* data, std::size_t bytes, int node);

  /// Moves the pages of the range, which exist, to `node`. **Errors.** PermissionDenied: it is
  /// forbidden. FailedPrecondition: some could not be moved.
  Status Move(std::byte* data, std::size_t bytes, int node);

  /// Makes pages of a range exist.
  using MakePages = std::function<Status(std::byte* data, std::size_t bytes)>;
  /// Calls `reserve` for the range: at once, or where binding was forbidden for each of its parts on
  /// CPUs of the node of that.
  Status Reserve(std::byte* data, std::size_t bytes, const MakePages& reserve);

  /// Where the pages of the range lie, which exist, against what was asked for.
  PlacementReport Verify(std::byte* data, std::size_t bytes);

 private:
  struct Part {
    std::byte* begin;
    std::byte* end;
    int node;
    bool is_bound;
  };

  /// A piece of a range, and where it shall lie.
  struct Piece {
    std::byte* begin;
    std::byte* end;
    const Part* part;  // the latest that holds it; null if no node was asked for
  };
  std::vector<Piece> PiecesOf(std::byte* data, std::size_t bytes) const;
  Status ReserveUnbound(const Piece& piece, const MakePages& reserve);
  /// Puts the pages into the tables of this process, where the kernel looks for them.
  void Map(std::byte* data, std::size_t bytes);

  NumaOps& ops_;
  const SystemRoots roots_;
  std::optional<NumaNodes> nodes_;  // read at first use
  std::vector<Part> parts_;
};

}  // namespace internal

struct SharedArenaMaker {
  /// As SharedArena::Create. `ops` outlive the arena.
  static StatusOr<std::shared_ptr<SharedArena>> Make(const SharedArenaOptions& options,
                                                     internal::NumaOps& ops);
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_ARENA_PLACER_INTERNAL_H_
