// SPDX-License-Identifier: Apache-2.0
#include "data/storage/block_pool_internal.h"

#include <utility>

#include "ait/memory/heap.h"

namespace ait::inline v0::internal {

BlockPool::BlockPool(MemoryHandle memory, std::size_t block_bytes, std::size_t alignment)
    : memory_(memory ? std::move(memory) : MemoryHandle(HeapResource::Create())),
      block_bytes_(block_bytes),
      alignment_(alignment) {}

StatusOr<std::shared_ptr<HostBuffer>> BlockPool::Take() {
  // Always from the first: then as few blocks go round as are needed, and stay in the cache.
  for (const std::shared_ptr<Block>& block : blocks_) {
    // What the last holder read from the block happened before it let go of it.
    if (!block->is_taken.load(std::memory_order_acquire)) return Hand(block);
  }
  AIT_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Create(memory_, block_bytes_, alignment_));
  blocks_.push_back(std::make_shared<Block>(std::move(buffer)));
  return Hand(blocks_.back());
}

std::shared_ptr<HostBuffer> BlockPool::Hand(const std::shared_ptr<Block>& block) {
  block->is_taken.store(true, std::memory_order_relaxed);
  // The holder keeps the block alive, also after the pool.
  return {&block->buffer,
          [block](HostBuffer*) { block->is_taken.store(false, std::memory_order_release); }};
}

}  // namespace ait::inline v0::internal
