// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_POOL_IMPL_H_
#define AIT_MEMORY_POOL_IMPL_H_

// The inside of PoolResource: shards in front, pages and slabs behind one mutex.
//
// Order of locks: the registry of pools, the mutex, a shard. No lock is held while the upstream is
// called, so that it may wait, fail over or give back blocks of this very pool.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "ait/memory/pool.h"
#include "memory/fork_locks_internal.h"
#include "memory/page_heap_internal.h"
#include "memory/pool_shard_internal.h"
#include "memory/size_classes_internal.h"

namespace ait::inline v0 {

class PoolResource::Impl final : public internal::ForkLocks {
 public:
  explicit Impl(const PoolOptions& options);
  ~Impl() override;

  StatusOr<void*> Allocate(std::size_t bytes, std::size_t alignment);
  void Deallocate(void* block, std::size_t bytes, std::size_t alignment);
  void DeallocateUnsized(void* block);
  std::size_t UsableSize(const void* block) const;
  Bytes Trim();
  PoolStatistics statistics() const;
  const PoolOptions& options() const { return options_; }

  void LockAll() override;
  void UnlockAll() override;

 private:
  using Chunks = std::vector<std::unique_ptr<internal::Chunk>>;

  internal::Shard& MyShard() { return shards_[internal::ThreadNumber() % shard_count_]; }
  StatusOr<internal::Span*> TakeSpan(std::size_t pages, std::size_t alignment,
                                     internal::SpanUse use);
  StatusOr<void*> TakeObject(std::size_t size_class, std::size_t requested);
  void GiveObject(void* object, std::size_t size_class);
  void GiveBlock(void* block, std::size_t pages);
  /// Gives blocks to the pages, and what is idle for long to the system.
  void Return(const internal::Block* blocks, std::size_t count);
  void GatherShards();                                                        // under the mutex
  Chunks DropIdle(Time now);                                                  // under the mutex
  std::size_t GiveBack(std::size_t pages, std::size_t unit, Chunks& chunks);  // under the mutex
  void ReturnChunks(Chunks chunks);
  Status Grow(std::size_t pages);

  PoolOptions options_;
  const bool discards_;
  const bool is_fresh_;         // what comes from the upstream has not been touched
  const bool returns_at_once_;  // what is free goes back
  const std::size_t shard_count_;
  const std::unique_ptr<internal::Shard[]> shards_;
  mutable std::mutex mutex_;
  internal::PageHeap heap_;  // this and the rest under the mutex
  internal::SlabLists slabs_{heap_};
  std::size_t peak_pages_ = 0;
  std::size_t returned_pages_ = 0;
  std::size_t window_peak_ = 0, last_window_peak_ = 0;  // pages in use at most, for idle_time
  Time window_begin_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_POOL_IMPL_H_
