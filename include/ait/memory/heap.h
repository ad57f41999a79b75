// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_HEAP_H_
#define AIT_MEMORY_HEAP_H_

// Private memory of this process: the resource to use unless there is a reason for another.
//
// Fresh memory of the system costs an order of magnitude more to touch than memory in use, and
// malloc gives every block above 32 MiB back at once. So large blocks (kLargeBlock and up) are
// mapped here and, once freed, kept for the next request of that size.
//
//   auto heap = HeapResource::Create({.max_cached = GiB(1)});
//   AIT_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Create(heap, bytes));
//   ...
//   heap->Trim();                                    // give what is kept back to the system
//
// Large blocks take their size rounded up by at most 12.5 %, of which untouched pages cost nothing.
// From 2 MiB on they start on a huge page, and the system is advised to use huge pages.

#include <array>
#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include "ait/base/types.h"
#include "ait/memory/fork_safe_mutex.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

/// Whether large blocks ask for transparent huge pages.
enum class HugePages { kAdvise, kNever };

struct HeapOptions {
  Bytes max_cached = MiB(256);  ///< freed large blocks that are kept, at most; below 1: none
  HugePages huge_pages = HugePages::kAdvise;
};

class HeapResource final : public MemoryResource {
 public:
  /// Blocks from this size on are mapped and kept; smaller ones are malloc's.
  static constexpr std::size_t kLargeBlock = std::size_t{256} << 10;

  static std::shared_ptr<HeapResource> Create(const HeapOptions& options = {});
  /// All blocks have been given back.
  ~HeapResource() override;

  MemoryProperties properties() const override { return {.name = "heap"}; }

  /// Bytes of freed blocks that are kept.
  Bytes cached() const;

  /// Gives the freed blocks that are kept back to the system; returns how many bytes that were.
  Bytes Trim();

 private:
  struct Block {
    void* address;
    std::size_t bytes;
  };
  using Blocks = std::list<Block>;

  explicit HeapResource(const HeapOptions& options) : options_(options) {}
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  void* TakeCached(std::size_t bytes);

  const HeapOptions options_;
  mutable ForkSafeMutex mutex_;
  Blocks by_age_;                                        // kept blocks, the oldest first
  std::array<std::vector<Blocks::iterator>, 512> bins_;  // the same by size class, oldest first
  std::size_t cached_bytes_ = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_HEAP_H_
