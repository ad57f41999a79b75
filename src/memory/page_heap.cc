// SPDX-License-Identifier: Apache-2.0
#include "memory/page_heap_internal.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace ait::inline v0::internal {
namespace {

/// Calls `visit(word, mask)` for the words of a bit set that hold bits begin to end - 1.
template <typename Words, typename Visit>
void ForWords(Words& words, std::size_t begin, std::size_t end, Visit visit) {
  while (begin < end) {
    const std::size_t shift = begin % 64, count = std::min<std::size_t>(64 - shift, end - begin);
    const std::uint64_t ones = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    visit(words[begin / 64], ones << shift);
    begin += count;
  }
}

std::size_t CountClean(const Chunk& chunk, std::size_t first, std::size_t pages) {
  std::size_t count = 0;
  ForWords(chunk.clean, first, first + pages, [&](std::uint64_t word, std::uint64_t mask) {
    count += static_cast<std::size_t>(std::popcount(word & mask));
  });
  return count;
}

void SetClean(Chunk& chunk, std::size_t first, std::size_t pages, bool clean) {
  ForWords(chunk.clean, first, first + pages, [&](std::uint64_t& word, std::uint64_t mask) {
    word = clean ? word | mask : word & ~mask;
  });
}

std::size_t CountCleanOf(const Span& span, std::size_t first, std::size_t pages) {
  if (span.clean == 0) return 0;
  if (span.clean == span.pages) return pages;
  return CountClean(*span.chunk, first, pages);
}

}  // namespace

PageHeap::~PageHeap() {
  for (auto& leaf : *root_) delete leaf.load(std::memory_order_relaxed);
}

PageHeap::Fit PageHeap::Find(std::size_t pages, std::size_t alignment) const {
  constexpr int kCandidates = 16;  // looked at for one whose pages are in use already
  Fit best;
  int candidates = 0;
  for (auto it = free_.lower_bound(pages); it != free_.end() && candidates < kCandidates; ++it) {
    Span* const span = *it;
    const auto address = reinterpret_cast<std::uintptr_t>(span->data());
    const std::size_t skip = (alignment - address % alignment) % alignment / kPage;
    if (skip + pages > span->pages) continue;
    const std::size_t first = span->first + skip;
    const std::size_t clean = CountCleanOf(*span, first, pages);
    if (best.span == nullptr || clean < best.clean) best = {span, first, clean};
    if (clean == 0) break;
    ++candidates;
  }
  return best;
}

Span* PageHeap::NewSpan(Chunk* chunk, std::size_t first, std::size_t pages, SpanUse use) {
  Span* span = nullptr;
  if (spare_.empty()) {
    span = &spans_.emplace_back();
  } else {
    span = spare_.back();
    spare_.pop_back();
  }
  *span = {.chunk = chunk, .first = first, .pages = pages, .use = use};
  chunk->spans[first] = chunk->spans[first + pages - 1] = span;
  return span;
}

void PageHeap::InsertFree(Chunk* chunk, std::size_t first, std::size_t pages, std::size_t clean) {
  if (pages == 0) return;
  Span* const span = NewSpan(chunk, first, pages, SpanUse::kFree);
  span->clean = clean;
  free_.insert(span);
}

Span* PageHeap::Take(const Fit& fit, std::size_t pages, SpanUse use) {
  const Span whole = *fit.span;
  free_.erase(fit.span);
  DropSpan(fit.span);
  Chunk* const chunk = whole.chunk;
  const std::size_t before = fit.first - whole.first, after = whole.pages - before - pages;
  InsertFree(chunk, whole.first, before, CountCleanOf(whole, whole.first, before));
  InsertFree(chunk, fit.first + pages, after, CountCleanOf(whole, fit.first + pages, after));
  Span* const span = NewSpan(chunk, fit.first, pages, use);
  if (use == SpanUse::kSlab) {
    for (std::size_t i = 0; i < pages; ++i) chunk->spans[fit.first + i] = span;
  }
  if (fit.clean != 0) SetClean(*chunk, fit.first, pages, false);
  clean_ -= fit.clean;
  used_ += pages;
  return span;
}

void PageHeap::Free(Span* span) {
  Chunk* const chunk = span->chunk;
  std::size_t first = span->first, pages = span->pages, clean = 0;
  used_ -= pages;
  DropSpan(span);
  const auto join = [&](Span* neighbour) {
    first = std::min(first, neighbour->first);
    pages += neighbour->pages;
    clean += neighbour->clean;
    free_.erase(neighbour);
    DropSpan(neighbour);
  };
  const std::size_t end = first + pages;
  if (first > 0 && chunk->spans[first - 1]->use == SpanUse::kFree) join(chunk->spans[first - 1]);
  if (end < chunk->pages && chunk->spans[end]->use == SpanUse::kFree) join(chunk->spans[end]);
  InsertFree(chunk, first, pages, clean);
}

void PageHeap::Enter(Chunk* chunk, Chunk* value) {
  const auto begin = reinterpret_cast<std::uintptr_t>(chunk->base) / kHugePage;
  for (std::uintptr_t unit = begin; unit < begin + chunk->pages * kPage / kHugePage; ++unit) {
    auto& slot = (*root_)[unit >> kLeafBits];
    Leaf* leaf = slot.load(std::memory_order_relaxed);
    if (leaf == nullptr) {
      leaf = new Leaf{};
      slot.store(leaf, std::memory_order_release);
    }
    (*leaf)[unit % leaf->size()].store(value, std::memory_order_release);
  }
}

bool PageHeap::AddChunk(void* base, std::size_t bytes, bool is_clean) {
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(base) + bytes;
  if (end > std::uintptr_t{1} << 48) return false;
  const std::size_t pages = bytes / kPage;
  chunks_.push_back(std::make_unique<Chunk>(Chunk{
      .base = static_cast<std::byte*>(base),
      .pages = pages,
      .spans = std::vector<Span*>(pages),
      .clean = std::vector<std::uint64_t>((pages + 63) / 64, is_clean ? ~std::uint64_t{0} : 0)}));
  Enter(chunks_.back().get(), chunks_.back().get());
  const std::size_t clean = is_clean ? pages : 0;
  InsertFree(chunks_.back().get(), 0, pages, clean);
  held_ += pages;
  clean_ += clean;
  return true;
}

std::vector<std::unique_ptr<Chunk>> PageHeap::RemoveFreeChunks(std::size_t pages) {
  std::vector<Span*> whole;
  for (Span* const span : free_) {
    if (span->pages == span->chunk->pages) whole.push_back(span);
  }
  const auto touched = [](const Span* span) { return span->pages - span->clean; };
  std::ranges::sort(whole, [&](auto* a, auto* b) { return touched(a) > touched(b); });
  std::vector<std::unique_ptr<Chunk>> removed;
  std::size_t so_far = 0;
  for (Span* const span : whole) {
    if (so_far >= pages) break;
    so_far += touched(span);
    free_.erase(span);
    DropSpan(span);
    Enter(span->chunk, nullptr);
    held_ -= span->pages;
    clean_ -= span->clean;
    const auto chunk =
        std::ranges::find_if(chunks_, [&](const auto& c) { return c.get() == span->chunk; });
    removed.push_back(std::move(*chunk));
    chunks_.erase(chunk);
  }
  return removed;
}

std::size_t PageHeap::Discard(std::size_t pages, std::size_t unit) {
  std::size_t discarded = 0;
  for (auto it = free_.rbegin(); it != free_.rend() && discarded < pages; ++it) {
    Span& span = **it;
    if (span.clean == span.pages) continue;
    // Chunks start on a huge page, so units count from the beginning of the chunk.
    const std::size_t begin = (span.first + unit - 1) / unit * unit;
    const std::size_t end = (span.first + span.pages) / unit * unit;
    if (begin >= end) continue;
    const std::size_t touched = end - begin - CountCleanOf(span, begin, end - begin);
    if (touched == 0) continue;
    if (madvise(span.chunk->base + begin * kPage, (end - begin) * kPage, MADV_DONTNEED) != 0) {
      continue;  // locked by the owner of the memory: they stay
    }
    SetClean(*span.chunk, begin, end - begin, true);
    span.clean += touched;
    clean_ += touched;
    discarded += touched;
  }
  return discarded;
}

Span* PageHeap::SpanAt(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t unit = at / kHugePage;
  if (unit >> kLeafBits >= root_->size()) return nullptr;
  const Leaf* const leaf = (*root_)[unit >> kLeafBits].load(std::memory_order_acquire);
  if (leaf == nullptr) return nullptr;
  const Chunk* const chunk = (*leaf)[unit % leaf->size()].load(std::memory_order_acquire);
  if (chunk == nullptr) return nullptr;
  const std::size_t page = (at - reinterpret_cast<std::uintptr_t>(chunk->base)) / kPage;
  return chunk->spans[page];
}

}  // namespace ait::inline v0::internal
