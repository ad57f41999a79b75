// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <utility>

#include "ait/memory/heap.h"
#include "data/storage/block_pool_internal.h"

namespace ait::inline v0::internal {

BlockPool::BlockPool(MemoryHandle memory, std::size_t block_bytes, std::size_t alignment)
    : memory_(memory ? std::move(memory) : MemoryHandle(HeapResource::Create())),
      block_bytes_(block_bytes),
      alignment_(alignment) {}

StatusOr<std::shared_ptr<HostBuffer>> BlockPool::Take() {
  // Always from the first: then as few blocks go round as are needed, and stay in the cache.
  for (const std::shared_ptr<HostBuffer>& block : blocks_) {
    if (block.use_count() == 1) {
      // What the last holder read from the block happened before it let go of it.
      std::atomic_thread_fence(std::memory_order_acquire);
      return block;
    }
  }
  AIT_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Create(memory_, block_bytes_, alignment_));
  blocks_.push_back(std::make_shared<HostBuffer>(std::move(buffer)));
  return blocks_.back();
}

}  // namespace ait::inline v0::internal
