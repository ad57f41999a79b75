// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_REGION_ALLOCATOR_INTERNAL_H_
#define AIT_MEMORY_REGION_ALLOCATOR_INTERNAL_H_

// Divides a range of offsets into regions: address-ordered first fit, neighbours joined when freed
// (Knuth, The Art of Computer Programming, vol. 1, section 2.5). It keeps its books outside of the
// memory that it divides, which may be shared with processes that crash.

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace ait::inline v0::internal {

class RegionAllocator {
 public:
  explicit RegionAllocator(std::size_t capacity) : capacity_(capacity), free_bytes_(capacity) {
    if (capacity > 0) free_.emplace(0, capacity);
  }

  /// The offset, a multiple of `alignment`, of `bytes` free bytes, taken; nullopt if no gap fits.
  std::optional<std::size_t> Allocate(std::size_t bytes, std::size_t alignment);

  /// Frees what Allocate gave. False, and nothing done, if some of it is free or outside.
  bool Free(std::size_t offset, std::size_t bytes);

  /// What is taken of [begin, end), in ascending order: pairs of begin and end.
  std::vector<std::pair<std::size_t, std::size_t>> Taken(std::size_t begin, std::size_t end) const;

  std::size_t free_bytes() const { return free_bytes_; }
  bool is_empty() const { return free_bytes_ == capacity_; }
  std::size_t largest_gap() const;

 private:
  std::size_t capacity_;
  std::size_t free_bytes_;
  std::map<std::size_t, std::size_t> free_;  // offset to bytes; gaps do not touch
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_REGION_ALLOCATOR_INTERNAL_H_
