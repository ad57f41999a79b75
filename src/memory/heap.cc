// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <system_error>

#include "memory/mapping_internal.h"

namespace ait::inline v0 {
namespace {

using internal::kHugePage;
using internal::kPage;
using internal::MapAligned;
using internal::Unmap;

bool IsLarge(std::size_t bytes, std::size_t alignment) {
  return bytes >= HeapResource::kLargeBlock || alignment > kPage;
}

/// What a large block takes: a function of the request alone, so that it need not be stored. Eight
/// sizes for each doubling. An alignment above a page takes a block that starts on a huge page.
std::size_t LargeSize(std::size_t bytes, std::size_t alignment) {
  if (alignment > kPage) bytes = std::max(bytes, kHugePage);
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

/// A number for each size that LargeSize gives.
std::size_t BinOf(std::size_t size) {
  const std::size_t doubling = static_cast<std::size_t>(std::bit_width(size)) - 1;
  return doubling * 8 + (size >> (doubling - 3)) % 8;
}
static_assert(48 * 8 + 7 < 512, "kMaxBytes has a bin");

void* MapLarge(std::size_t size, HugePages huge_pages) {
  if (size < kHugePage) return MapAligned(size, kPage, -1);
  void* const address = MapAligned(size, kHugePage, -1);
  // Advice: where the system has no huge pages, small ones do.
  if (address != nullptr && huge_pages == HugePages::kAdvise) madvise(address, size, MADV_HUGEPAGE);
  return address;
}

}  // namespace

std::shared_ptr<HeapResource> HeapResource::Create(const HeapOptions& options) {
  return std::shared_ptr<HeapResource>(new HeapResource(options));
}

HeapResource::~HeapResource() { Trim(); }

Bytes HeapResource::cached() const {
  const std::lock_guard lock(mutex_);
  return Bytes(static_cast<std::int64_t>(cached_bytes_));
}

Bytes HeapResource::Trim() {
  Blocks blocks;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    blocks.swap(by_age_);
    for (auto& bin : bins_) bin.clear();
    std::swap(bytes, cached_bytes_);
  }
  for (const Block& block : blocks) Unmap(block.address, block.bytes);
  return Bytes(static_cast<std::int64_t>(bytes));
}

/// The block of this size that was freed last, whose bytes may still be in a cache; or nullptr.
void* HeapResource::TakeCached(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& bin = bins_[BinOf(bytes)];
  if (bin.empty()) return nullptr;
  void* const address = bin.back()->address;
  by_age_.erase(bin.back());
  bin.pop_back();
  cached_bytes_ -= bytes;
  return address;
}

StatusOr<void*> HeapResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  void* address = nullptr;
  if (!IsLarge(bytes, alignment)) {
    address = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  } else {
    const std::size_t size = LargeSize(bytes, alignment);
    address = TakeCached(size);
    if (address == nullptr) address = MapLarge(size, options_.huge_pages);
    if (address == nullptr && Trim() > Bytes(0)) address = MapLarge(size, options_.huge_pages);
  }
  if (address != nullptr) return address;
  return ResourceExhaustedError("cannot allocate ", bytes,
                                " bytes from the heap: ", std::generic_category().message(errno),
                                "; the address space (ulimit -v), the system's commit limit or "
                                "its number of mappings (vm.max_map_count) is used up");
}

void HeapResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  if (!IsLarge(bytes, alignment)) {
    std::free(block);
    return;
  }
  const std::size_t size = LargeSize(bytes, alignment);
  if (options_.max_cached < Bytes(1) ||
      size > static_cast<std::size_t>(options_.max_cached.value())) {
    Unmap(block, size);
    return;
  }
  Blocks evicted;
  {
    const std::lock_guard lock(mutex_);
    while (cached_bytes_ + size > static_cast<std::size_t>(options_.max_cached.value())) {
      auto& bin = bins_[BinOf(by_age_.front().bytes)];
      bin.erase(bin.begin());  // the oldest of all is the oldest of its size
      cached_bytes_ -= by_age_.front().bytes;
      evicted.splice(evicted.end(), by_age_, by_age_.begin());
    }
    by_age_.push_back({block, size});
    bins_[BinOf(size)].push_back(std::prev(by_age_.end()));
    cached_bytes_ += size;
  }
  for (const Block& old : evicted) Unmap(old.address, old.bytes);
}

}  // namespace ait::inline v0
