// SPDX-License-Identifier: Apache-2.0
#include "memory/region_allocator_internal.h"

#include <algorithm>
#include <iterator>

namespace ait::inline v0::internal {

std::optional<std::size_t> RegionAllocator::Allocate(std::size_t bytes, std::size_t alignment) {
  for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
    const auto [begin, size] = *gap;
    const std::size_t skip = (alignment - begin % alignment) % alignment;
    if (size < skip || size - skip < bytes) continue;
    const std::size_t rest = size - skip - bytes;
    free_bytes_ -= bytes;
    if (skip == 0) {
      free_.erase(gap);
    } else {
      gap->second = skip;
    }
    if (rest > 0) free_.emplace(begin + skip + bytes, rest);
    return begin + skip;
  }
  return std::nullopt;
}

bool RegionAllocator::Free(std::size_t offset, std::size_t bytes) {
  if (bytes == 0 || offset > capacity_ || bytes > capacity_ - offset) return false;
  auto next = free_.lower_bound(offset);
  auto previous = next == free_.begin() ? free_.end() : std::prev(next);
  const std::size_t previous_end = previous == free_.end() ? 0 : previous->first + previous->second;
  if (previous_end > offset) return false;
  if (next != free_.end() && next->first < offset + bytes) return false;
  free_bytes_ += bytes;

  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    free_.erase(next);
  }
  if (previous != free_.end() && previous_end == offset) {
    previous->second += bytes;
  } else {
    free_.emplace(offset, bytes);
  }
  return true;
}

std::vector<std::pair<std::size_t, std::size_t>> RegionAllocator::Taken(std::size_t begin,
                                                                        std::size_t end) const {
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  auto gap = free_.upper_bound(begin);
  if (gap != free_.begin()) {
    const auto& [offset, size] = *std::prev(gap);
    begin = std::max(begin, offset + size);
  }
  for (; begin < end; ++gap) {
    const std::size_t stop = gap == free_.end() ? end : std::min(gap->first, end);
    if (begin < stop) taken.emplace_back(begin, stop);
    if (gap == free_.end()) break;
    begin = gap->first + gap->second;
  }
  return taken;
}

std::size_t RegionAllocator::largest_gap() const {
  std::size_t largest = 0;
  for (const auto& [offset, size] : free_) largest = std::max(largest, size);
  return largest;
}

}  // namespace ait::inline v0::internal
