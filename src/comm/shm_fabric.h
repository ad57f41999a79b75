// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHM_FABRIC_H_
#define AIT_COMM_SHM_FABRIC_H_

// What the ranks of one host share, below any group: everybody's arena mapped, everybody's life
// watched. Groups and their subgroups are made on top and keep it alive.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/store.h"
#include "ait/memory/shared_arena.h"
#include "base/file_descriptor.h"

namespace ait::inline v0::internal {

/// One rank as another one sees it.
struct ShmPeer {
  FileDescriptor life;  // readable once the process has ended
  int pid = 0;
  std::optional<SharedArenaView> view;  // of its arena; none where the mapping is shared
};

/// A page that a forked child finds empty.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  bool forked() const { return page_ != nullptr && *page_ == 0; }

 private:
  volatile char* page_ = nullptr;
};

/// **Thread-safety.** All members may be called from any thread.
class ShmFabric {
 public:
  /// **Collective. Blocks.**
  static StatusOr<std::shared_ptr<ShmFabric>> Join(Store& store, const std::string& key, Rank rank,
                                                   WorldSize size, Deadline deadline,
                                                   const SharedMemoryOptions& options);

  /// Ranks as threads that share one mapping, so that a race detector sees what they touch.
  static StatusOr<std::vector<std::shared_ptr<ShmFabric>>> OfThreads(
      WorldSize size, const SharedMemoryOptions& options);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const SharedMemoryOptions& options() const { return options_; }
  const std::shared_ptr<SharedArena>& arena() const { return arena_; }
  bool forked() const { return guard_.forked(); }
  int pid(int rank) const { return peers_[static_cast<std::size_t>(rank)].pid; }

  /// The address here of `bytes` at `offset` in the arena of `rank`; null if they are not inside.
  std::byte* At(int rank, std::uint64_t offset, std::size_t bytes) const;
  /// Offset in the own arena; kForeign if the bytes do not lie in it.
  std::uint64_t OffsetOf(const void* data, std::size_t bytes) const;

  /// Takes the pages of the peers' arenas out of the resident set of this process.
  void ForgetPeerPages() const;

  /// Whether the process of `rank` has ended. One system call.
  bool IsDead(int rank) const;

  /// Frees blocks of the own arena as soon as `may_free` says so; asked now and at later calls.
  void FreeLater(std::function<bool()> may_free);

 private:
  ShmFabric(int rank, std::vector<ShmPeer> peers, std::shared_ptr<SharedArena> arena,
            SharedMemoryOptions options);

  const int rank_;
  const std::vector<ShmPeer> peers_;
  const std::shared_ptr<SharedArena> arena_;
  const SharedMemoryOptions options_;
  ForkGuard guard_;
  std::mutex mutex_;
  std::list<std::function<bool()>> graves_;
};

/// The arena of one rank, by the options.
StatusOr<std::shared_ptr<SharedArena>> CreateRankArena(const SharedMemoryOptions& options,
                                                       int size);

/// InvalidArgument for options that cannot work.
Status CheckSharedMemoryOptions(const SharedMemoryOptions& options);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SHM_FABRIC_H_
