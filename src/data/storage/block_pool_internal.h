// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_BLOCK_POOL_INTERNAL_H_
#define AIT_DATA_STORAGE_BLOCK_POOL_INTERNAL_H_

// Blocks of one size that are used again once nobody holds a view of them.

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ait/base/status.h"
#include "ait/memory/buffer.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {
namespace internal {

/// **Thread-safety.** `Take` from one thread at a time; blocks may be let go of by any.
class BlockPool {
 public:
  /// An empty `memory` is the heap.
  BlockPool(MemoryHandle memory, std::size_t block_bytes, std::size_t alignment);

  std::size_t block_bytes() const { return block_bytes_; }
  /// A block that nobody else holds: an old one if there is one, else a new one.
  StatusOr<std::shared_ptr<HostBuffer>> Take();
  /// Blocks made so far.
  std::size_t block_count() const { return blocks_.size(); }

 private:
  struct Block {
    explicit Block(HostBuffer memory) : buffer(std::move(memory)) {}
    HostBuffer buffer;
    std::atomic<bool> is_taken = false;
  };
  static std::shared_ptr<HostBuffer> Hand(const std::shared_ptr<Block>& block);

  MemoryHandle memory_;
  std::size_t block_bytes_;
  std::size_t alignment_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_BLOCK_POOL_INTERNAL_H_
