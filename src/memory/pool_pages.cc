// SPDX-License-Identifier: Apache-2.0
// The slow side of a pool: pages taken from chunks, chunks from the upstream, and both given back.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "ait/memory/pool.h"
#include "memory/poison_internal.h"
#include "memory/pool_impl.h"

namespace ait::inline v0 {

using internal::Block;
using internal::kHugePage;
using internal::kPage;
using internal::Shard;
using internal::Span;
using internal::SpanUse;

namespace {
constexpr std::size_t kHugePages = kHugePage / kPage;  // pages of a huge page
constexpr std::size_t kAll = SIZE_MAX;
std::int64_t BytesOf(std::size_t pages) { return static_cast<std::int64_t>(pages * kPage); }
}  // namespace

StatusOr<Span*> PoolResource::Impl::TakeSpan(std::size_t pages, std::size_t alignment,
                                             SpanUse use) {
  const auto take = [&]() -> Span* {
    const std::lock_guard lock(mutex_);
    internal::PageHeap::Fit fit = heap_.Find(pages, alignment);
    if (fit.span == nullptr || fit.clean > 0) {
      // Before fresh pages are touched, those that threads keep at hand are joined.
      GatherShards();
      fit = heap_.Find(pages, alignment);
    }
    if (fit.span == nullptr) return nullptr;
    Span* const span = heap_.Take(fit, pages, use);
    peak_pages_ = std::max(peak_pages_, heap_.used_pages());
    window_peak_ = std::max(window_peak_, heap_.used_pages());
    return span;
  };
  while (true) {
    if (Span* const span = take()) return span;
    const Status grown = Grow(pages);
    if (grown.ok()) continue;
    // Another thread may have got the memory that there was, and need only a part of it.
    if (Span* const span = take()) return span;
    return grown;
  }
}

Status PoolResource::Impl::Grow(std::size_t pages) {
  const auto round_up = [](std::size_t bytes) {
    return (bytes + kHugePage - 1) / kHugePage * kHugePage;
  };
  // Chunks start on a huge page, which is the largest alignment that can be asked for.
  static_assert(kHugePage == MemoryResource::kMaxAlignment);
  const std::size_t least = round_up(pages * kPage);
  std::size_t bytes =
      std::max(least, round_up(static_cast<std::size_t>(options_.chunk_bytes.value())));
  StatusOr<void*> chunk = options_.upstream.Allocate(bytes, kHugePage);
  if (!chunk.ok() && bytes > least) {
    bytes = least;
    chunk = options_.upstream.Allocate(bytes, kHugePage);
  }
  if (!chunk.ok()) {
    const std::int64_t held = statistics().held_bytes;
    Trim();
    if (statistics().held_bytes < held) chunk = options_.upstream.Allocate(bytes, kHugePage);
  }
  if (!chunk.ok()) {
    const PoolStatistics now = statistics();
    return Annotate(
        chunk.status(),
        StrCat("the pool has no ", pages * kPage, " bytes in one piece (it holds ", now.held_bytes,
               ", of which ", now.live_bytes, " are in use and the largest free piece has ",
               now.largest_free_bytes, ")"));
  }
  internal::Poison(*chunk, bytes);
  {
    const std::lock_guard lock(mutex_);
    if (heap_.AddChunk(*chunk, bytes, is_fresh_)) return OkStatus();
  }
  internal::Unpoison(*chunk, bytes);
  options_.upstream.Deallocate(*chunk, bytes, kHugePage);
  return ResourceExhaustedError("the pool cannot use memory at addresses of more than 48 bits");
}

void PoolResource::Impl::GatherShards() {
  for (std::size_t s = 0; s < shard_count_; ++s) {
    Shard& shard = shards_[s];
    const std::lock_guard lock(shard.lock);
    for (std::size_t i = 0; i < shard.block_count; ++i) {
      heap_.Free(heap_.SpanAt(shard.blocks[i].address));
    }
    shard.block_count = 0;
    shard.block_pages = 0;
  }
}

void PoolResource::Impl::Return(const Block* blocks, std::size_t count) {
  Chunks chunks;
  const Time now = options_.clock->now();
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) heap_.Free(heap_.SpanAt(blocks[i].address));
    chunks = DropIdle(now);
  }
  ReturnChunks(std::move(chunks));
}

PoolResource::Impl::Chunks PoolResource::Impl::DropIdle(Time now) {
  // Idle pages that are not worth a system call.
  const std::size_t least = returns_at_once_ ? 0 : 8 * kHugePages;
  Chunks chunks;
  if (heap_.idle_pages() <= least) return chunks;
  if (now - window_begin_ >= Saturate(options_.idle_time)) {
    // What was needed at most in the last whole window and in this one may be needed again.
    last_window_peak_ = window_peak_;
    window_peak_ = heap_.used_pages();
    window_begin_ = now;
  }
  const std::size_t needed =
      returns_at_once_ ? heap_.used_pages() : std::max(window_peak_, last_window_peak_);
  // An eighth more for gaps between blocks.
  const std::size_t allowed = needed + (returns_at_once_ ? 0 : needed / 8) + least;
  const std::size_t touched = heap_.used_pages() + heap_.idle_pages();
  if (touched > allowed) GiveBack(touched - needed, kHugePages, chunks);
  return chunks;
}

std::size_t PoolResource::Impl::GiveBack(std::size_t pages, std::size_t unit, Chunks& chunks) {
  const std::size_t idle = heap_.idle_pages();
  chunks = heap_.RemoveFreeChunks(pages);
  const std::size_t removed = idle - heap_.idle_pages();
  if (discards_ && removed < pages) heap_.Discard(pages - removed, unit);
  returned_pages_ += idle - heap_.idle_pages();
  return idle - heap_.idle_pages();
}

void PoolResource::Impl::ReturnChunks(Chunks chunks) {
  for (const auto& chunk : chunks) {
    internal::Unpoison(chunk->base, chunk->pages * kPage);
    options_.upstream.Deallocate(chunk->base, chunk->pages * kPage, kHugePage);
  }
}

Bytes PoolResource::Impl::Trim() {
  Chunks chunks;
  std::size_t pages = 0;
  {
    const std::lock_guard lock(mutex_);
    GatherShards();
    for (std::size_t s = 0; s < shard_count_; ++s) {
      Shard& shard = shards_[s];
      const std::lock_guard shard_lock(shard.lock);
      for (std::size_t c = 0; c < internal::kSizeClasses; ++c) {
        while (shard.object_count[c] != 0) slabs_.Give(shard.objects[c][--shard.object_count[c]]);
      }
      shard.object_bytes = 0;
    }
    slabs_.FreeEmpty();
    pages = GiveBack(kAll, 1, chunks);
    window_peak_ = last_window_peak_ = heap_.used_pages();
  }
  ReturnChunks(std::move(chunks));
  return Bytes(BytesOf(pages));
}

PoolStatistics PoolResource::Impl::statistics() const {
  PoolStatistics statistics;
  const std::lock_guard lock(mutex_);
  std::uint64_t returned = 0;
  for (std::size_t s = 0; s < shard_count_; ++s) {
    Shard& shard = shards_[s];
    const std::lock_guard shard_lock(shard.lock);
    statistics.requested_total_bytes += static_cast<std::int64_t>(shard.requested);
    statistics.rounded_total_bytes += static_cast<std::int64_t>(shard.rounded);
    statistics.cached_bytes +=
        BytesOf(shard.block_pages) + static_cast<std::int64_t>(shard.object_bytes);
    returned += shard.returned;
  }
  statistics.live_bytes = statistics.rounded_total_bytes - static_cast<std::int64_t>(returned);
  statistics.touched_bytes = BytesOf(heap_.used_pages() + heap_.idle_pages());
  statistics.held_bytes = BytesOf(heap_.held_pages());
  statistics.peak_bytes = BytesOf(peak_pages_);
  statistics.returned_total_bytes = BytesOf(returned_pages_);
  statistics.largest_free_bytes = BytesOf(heap_.largest_free_pages());
  statistics.chunk_count = static_cast<std::int64_t>(heap_.chunk_count());
  return statistics;
}

void PoolResource::Impl::LockAll() {
  mutex_.lock();
  for (std::size_t s = 0; s < shard_count_; ++s) shards_[s].lock.lock();
}

void PoolResource::Impl::UnlockAll() {
  for (std::size_t s = 0; s < shard_count_; ++s) shards_[s].lock.unlock();
  mutex_.unlock();
}

}  // namespace ait::inline v0
