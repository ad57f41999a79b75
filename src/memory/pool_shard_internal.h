// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_POOL_SHARD_INTERNAL_H_
#define AIT_MEMORY_POOL_SHARD_INTERNAL_H_

// Blocks that a pool keeps at hand. A pool has several shards and a thread uses always the same one,
// so that a thread waits for another only where there are more threads than shards. Shards belong to
// the pool and not to threads: a thread that ends leaves nothing to clean up, and the pool can gather
// in what every shard keeps.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/size_classes_internal.h"
#include "memory/spin_lock_internal.h"

namespace ait::inline v0::internal {

/// Number of this thread, counted from 0 in order of first use.
inline std::size_t ThreadNumber() {
  static constinit std::atomic<std::size_t> next{0};
  static constinit thread_local std::size_t number = 0;  // plus one; 0: none yet
  if (number == 0) number = next.fetch_add(1, std::memory_order_relaxed) + 1;
  return number - 1;
}

struct Block {
  void* address;
  std::size_t pages;
};

struct alignas(128) Shard {
  static constexpr std::size_t kBlocks = 16;
  static constexpr std::size_t kMaxBlockPages = (std::size_t{64} << 20) / kPage;  // of all together
  static constexpr std::size_t kObjects = 32;

  /// How many objects of a class are kept: about 64 KiB of them, 4 to 32.
  static constexpr std::size_t Capacity(std::size_t size_class) {
    return std::clamp((std::size_t{64} << 10) / BytesOfClass(size_class), std::size_t{4}, kObjects);
  }

  /// A block of exactly `pages`, the one freed last; nullptr if there is none.
  void* TakeBlock(std::size_t pages) {
    for (std::size_t i = block_count; i-- > 0;) {
      if (blocks[i].pages != pages) continue;
      void* const address = blocks[i].address;
      for (--block_count; i < block_count; ++i) blocks[i] = blocks[i + 1];
      block_pages -= pages;
      return address;
    }
    return nullptr;
  }

  SpinLock lock;
  std::uint32_t block_count = 0;
  std::size_t block_pages = 0;
  std::size_t object_bytes = 0;
  // Ever handed out and taken back by this shard, so that the difference of the sums is what is live.
  std::uint64_t requested = 0, rounded = 0, returned = 0;
  std::array<Block, kBlocks> blocks;  // whole pages, the oldest first
  std::array<std::uint8_t, kSizeClasses> object_count{};
  std::array<std::array<void*, kObjects>, kSizeClasses> objects;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_POOL_SHARD_INTERNAL_H_
