// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_POOL_H_
#define AIT_MEMORY_POOL_H_

// A pool: takes memory from another resource in large chunks, hands it out in blocks of any size,
// and serves the next request from what was freed, whatever size that had. In steady state it makes
// no system call and touches no fresh page.
//
//   auto pool = PoolResource::Create();                            // over pages of the system
//   auto pool = PoolResource::Create({.upstream = numa});          // over any other resource
//   AIT_ASSIGN_OR_RETURN(HostBuffer activations, HostBuffer::Create(pool, bytes));
//   ...
//   pool->Trim();                                      // give what is free back to the system
//
// Blocks above 32 KiB are whole pages, cut from the free run that fits best (of several, the one
// whose pages are in use already) and joined with their free neighbours when given back. Smaller
// ones have eight sizes for each doubling and share slabs. So a block takes at most 12.5 % more than
// was asked for, from 1 KiB on; below that it is rounded up to 128 bytes.
//
// What was freed last is kept at hand for the thread, without a lock that others wait for; before
// the pool takes fresh pages, all of that is gathered in and joined. So its resident memory stays
// near the most that was in use at once.
//
// Memory that has not been needed for once or twice `idle_time` goes back, all but 16 MiB: pages
// that are free inside chunks, if they are the pool's own, and chunks that are free as a whole.
// Nothing runs in the background: it happens when blocks are freed, and in Trim.
//
// A forked child has its copy of the pool and may go on with it, whatever other threads did at the
// moment of the fork (with an upstream whose memory a child inherits). **Thread-safety.** As of
// every resource; threads may come and go.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ait/base/clock.h"
#include "ait/base/types.h"
#include "ait/memory/heap.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

/// What happens to pages that are free inside a chunk that is not.
enum class IdlePages {
  kAutomatic,  ///< kDiscard over pages of the system, kKeep over another resource
  kKeep,       ///< they stay; right for memory that is locked, pinned or shared
  /// madvise(MADV_DONTNEED): the system has them back, and they are zero at the next touch. Right
  /// for private memory; a NUMA policy of the mapping stays, but pages are touched again by whoever
  /// uses them: where a node is full and the policy strict, the system kills instead of an error.
  kDiscard,
};

struct PoolOptions {
  MemoryHandle upstream = {};   ///< empty: pages of the system
  Bytes chunk_bytes = MiB(64);  ///< taken at once, at least; rounded up to 2 MiB
  /// Zero: free memory goes back at once, but for blocks up to kMaxSmall that threads keep at hand.
  std::chrono::milliseconds idle_time{10'000};
  IdlePages idle_pages = IdlePages::kAutomatic;
  HugePages huge_pages = HugePages::kAdvise;  ///< of pages of the system
  Clock* clock = nullptr;                     ///< for idle_time; null: SystemClock
};

/// Bytes. live ≤ live + cached ≤ touched ≤ held.
struct PoolStatistics {
  std::int64_t live_bytes = 0;     ///< in blocks that are handed out, as rounded
  std::int64_t cached_bytes = 0;   ///< freed, kept at hand for threads
  std::int64_t touched_bytes = 0;  ///< what the pool may keep resident: used once, not given back
  std::int64_t held_bytes = 0;     ///< in chunks
  std::int64_t peak_bytes = 0;     ///< most ever in blocks, those kept at hand and slabs
  std::int64_t largest_free_bytes = 0;  ///< the longest run of free pages
  std::int64_t chunk_count = 0;
  std::int64_t returned_total_bytes = 0;   ///< touched and then given back, ever
  std::int64_t requested_total_bytes = 0;  ///< asked for, of all blocks ever
  std::int64_t rounded_total_bytes = 0;    ///< what those blocks took

  /// The part of the blocks ever handed out that rounding has taken, 0 to 1.
  double waste() const {
    if (rounded_total_bytes == 0) return 0;
    return 1.0 -
           static_cast<double>(requested_total_bytes) / static_cast<double>(rounded_total_bytes);
  }
};

class PoolResource final : public MemoryResource {
 public:
  /// Blocks above this size are whole pages.
  static constexpr std::size_t kMaxSmall = std::size_t{32} << 10;

  /// **Errors.** InvalidArgument: a chunk size or time below zero, or an upstream of device memory.
  static StatusOr<std::shared_ptr<PoolResource>> Create(const PoolOptions& options = {});
  /// All blocks have been given back.
  ~PoolResource() override;

  MemoryProperties properties() const override;

  /// Gives back what is free; returns how many bytes that were, of those that were touched.
  Bytes Trim();

  PoolStatistics statistics() const;

  /// The bytes that `block`, handed out by this pool and not given back, takes: what was asked for,
  /// rounded up. Zero for an address outside of the pool's blocks.
  std::size_t UsableSize(const void* block) const;

  /// As Deallocate, for callers that do not know the size.
  void DeallocateUnsized(void* block);

 private:
  class Impl;

  explicit PoolResource(std::unique_ptr<Impl> impl);
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  const std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_POOL_H_
