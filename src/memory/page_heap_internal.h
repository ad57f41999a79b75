// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_PAGE_HEAP_INTERNAL_H_
#define AIT_MEMORY_PAGE_HEAP_INTERNAL_H_

// The pages of a pool: chunks, the spans that they are divided into, and which pages are clean, that
// is, have never been handed out or have been given back to the system.
//
// Free spans are joined with their free neighbours at once, and found by best fit (Wilson et al.,
// "Dynamic Storage Allocation: A Survey and Critical Review", 1995: of the policies that do not move
// blocks, best fit and address-ordered first fit leave the least gaps). Its books lie outside of the
// pages. **Thread-safety.** None, except for SpanAt.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "memory/mapping_internal.h"

namespace ait::inline v0::internal {

struct Chunk {
  std::byte* base;
  std::size_t pages;
  std::vector<struct Span*> spans;   // by page: of a span, the first and last; of a slab, all
  std::vector<std::uint64_t> clean;  // a bit a page
};

enum class SpanUse : std::uint8_t { kFree, kBlock, kSlab };

/// A run of pages.
struct Span {
  Chunk* chunk = nullptr;
  std::size_t first = 0;
  std::size_t pages = 0;
  std::size_t clean = 0;  // of a free span: how many pages are clean
  SpanUse use = SpanUse::kFree;
  // Of a slab, kept by SlabLists:
  std::uint8_t size_class = 0;
  std::uint16_t free_objects = 0;
  Span* previous = nullptr;
  Span* next = nullptr;
  std::array<std::uint64_t, 8> free{};  // a bit an object

  std::byte* data() const { return chunk->base + first * kPage; }
};

class PageHeap {
 public:
  PageHeap() = default;
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;
  ~PageHeap();

  struct Fit {
    Span* span = nullptr;   // free; null: there is none
    std::size_t first = 0;  // page of the chunk at which the new span begins
    std::size_t clean = 0;  // how many of its pages are clean
  };
  /// Where `pages` would go that start at a multiple of `alignment` bytes.
  Fit Find(std::size_t pages, std::size_t alignment) const;

  Span* Take(const Fit& fit, std::size_t pages, SpanUse use);
  void Free(Span* span);

  /// Takes `bytes` at `base`, both multiples of kHugePage; false if the address is out of range.
  /// `is_clean`: no page of it has been touched.
  bool AddChunk(void* base, std::size_t bytes, bool is_clean);

  /// Removes chunks that are free as a whole, those with most touched pages first, until `pages`
  /// touched ones are among them. The caller gives them back.
  std::vector<std::unique_ptr<Chunk>> RemoveFreeChunks(std::size_t pages);

  /// Gives free pages back to the system, in units of `unit` pages and from the longest runs on, until
  /// `pages` have been; returns how many.
  std::size_t Discard(std::size_t pages, std::size_t unit);

  /// The span in which `address` lies, which is that of a live block or object, or outside of all
  /// chunks (nullptr). May be called at any time without the lock.
  Span* SpanAt(const void* address) const;

  std::size_t held_pages() const { return held_; }
  std::size_t used_pages() const { return used_; }
  /// Free pages that are not clean.
  std::size_t idle_pages() const { return held_ - used_ - clean_; }
  std::size_t largest_free_pages() const { return free_.empty() ? 0 : (*free_.rbegin())->pages; }
  std::size_t chunk_count() const { return chunks_.size(); }
  const std::vector<std::unique_ptr<Chunk>>& chunks() const { return chunks_; }

 private:
  struct Smaller {
    using is_transparent = void;
    bool operator()(const Span* a, const Span* b) const {
      return a->pages != b->pages ? a->pages < b->pages : a->data() < b->data();
    }
    bool operator()(const Span* a, std::size_t pages) const { return a->pages < pages; }
  };
  // Address bits 21 to 47 in two steps.
  static constexpr std::size_t kLeafBits = 14, kRootBits = 13;
  using Leaf = std::array<std::atomic<Chunk*>, std::size_t{1} << kLeafBits>;

  Span* NewSpan(Chunk* chunk, std::size_t first, std::size_t pages, SpanUse use);
  void DropSpan(Span* span) { spare_.push_back(span); }
  void InsertFree(Chunk* chunk, std::size_t first, std::size_t pages, std::size_t clean);
  void Enter(Chunk* chunk, Chunk* value);

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::set<Span*, Smaller> free_;
  std::deque<Span> spans_;
  std::vector<Span*> spare_;
  std::unique_ptr<std::array<std::atomic<Leaf*>, std::size_t{1} << kRootBits>> root_ =
      std::make_unique<std::array<std::atomic<Leaf*>, std::size_t{1} << kRootBits>>();
  std::size_t held_ = 0, used_ = 0, clean_ = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_PAGE_HEAP_INTERNAL_H_
