// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_SIZE_CLASSES_INTERNAL_H_
#define AIT_MEMORY_SIZE_CLASSES_INTERNAL_H_

// The sizes of small blocks: multiples of 128 up to 1 KiB, then eight for each doubling up to 32 KiB,
// and the slabs that hold blocks of one size.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "memory/page_heap_internal.h"

namespace ait::inline v0::internal {

constexpr std::size_t kSizeClasses = 48;

/// The class of the smallest blocks that hold 1 ≤ bytes ≤ 32 KiB.
constexpr std::size_t SizeClassOf(std::size_t bytes) {
  if (bytes <= 1024) return (bytes + 127) / 128 - 1;
  const auto doubling = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
  return 8 + (doubling - 10) * 8 + ((bytes - 1) >> (doubling - 3)) % 8;
}

constexpr std::size_t BytesOfClass(std::size_t size_class) {
  if (size_class < 8) return (size_class + 1) * 128;
  return (size_class % 8 + 9) << (size_class / 8 + 6);
}

static_assert(SizeClassOf(1) == 0 && BytesOfClass(0) == 128);
static_assert(SizeClassOf(1025) == 8 && BytesOfClass(8) == 1152);
static_assert(SizeClassOf(32768) == kSizeClasses - 1 && BytesOfClass(kSizeClasses - 1) == 32768);

/// Pages of a slab: 64 KiB, or 256 KiB for blocks above 4 KiB, of which at most 6 % is left over.
constexpr std::size_t SlabPages(std::size_t size_class) {
  return BytesOfClass(size_class) <= 4096 ? 16 : 64;
}

/// The slabs of a pool that have free objects, by class. **Thread-safety.** None.
class SlabLists {
 public:
  explicit SlabLists(PageHeap& heap) : heap_(heap) {}

  /// Up to `count` objects into `objects`; fewer, or none, if the slabs have no more.
  std::size_t Take(std::size_t size_class, void** objects, std::size_t count);

  /// A span of SlabPages(size_class), from PageHeap::Take.
  void Add(Span* span, std::size_t size_class);

  /// Takes back an object. A slab that is empty is freed, but for one of its class.
  void Give(void* object);

  /// Frees the empty slabs as well.
  void FreeEmpty();

 private:
  struct List {
    Span* first = nullptr;  // slabs with free objects
    Span* empty = nullptr;  // a slab without live objects, in the list as well
  };
  void Link(List& list, Span* slab);
  void Unlink(List& list, Span* slab);

  PageHeap& heap_;
  std::array<List, kSizeClasses> lists_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_SIZE_CLASSES_INTERNAL_H_
