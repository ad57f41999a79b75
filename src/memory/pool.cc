// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/pool.h"

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

#include "memory/poison_internal.h"
#include "memory/pool_impl.h"
#include "memory/system_pages_internal.h"

namespace ait::inline v0 {

using internal::Block;
using internal::BytesOfClass;
using internal::kHugePage;
using internal::kPage;
using internal::Shard;
using internal::SizeClassOf;
using internal::Span;
using internal::SpanUse;

namespace {

std::size_t PagesOf(std::size_t bytes) { return (bytes + kPage - 1) / kPage; }

/// Whether a request is served from a slab, and then by which size: an object of a power of two
/// is aligned to that.
bool IsSmall(std::size_t& bytes, std::size_t alignment) {
  if (bytes > PoolResource::kMaxSmall || alignment > kPage) return false;
  if (alignment > MemoryResource::kMinAlignment) bytes = std::bit_ceil(std::max(bytes, alignment));
  return true;
}

std::size_t ShardCount() {
  return std::min<std::size_t>(
      64, std::bit_ceil(2 * std::max(4U, std::thread::hardware_concurrency())));
}

PoolOptions WithDefaults(PoolOptions options) {
  if (!options.upstream) {
    options.upstream = internal::SystemPages::Create(options.huge_pages);
    if (options.idle_pages == IdlePages::kAutomatic) options.idle_pages = IdlePages::kDiscard;
  }
  if (options.clock == nullptr) options.clock = &SystemClock();
  return options;
}

}  // namespace

PoolResource::Impl::Impl(const PoolOptions& options)
    : options_(WithDefaults(options)),
      discards_(options_.idle_pages == IdlePages::kDiscard),
      is_fresh_(!options.upstream),
      returns_at_once_(options_.idle_time.count() == 0),
      shard_count_(ShardCount()),
      shards_(std::make_unique<Shard[]>(shard_count_)),
      window_begin_(options_.clock->now()) {
  Enter();
}

PoolResource::Impl::~Impl() {
  Leave();
  for (const auto& chunk : heap_.chunks()) {
    internal::Unpoison(chunk->base, chunk->pages * kPage);
    options_.upstream.Deallocate(chunk->base, chunk->pages * kPage, kHugePage);
  }
}

StatusOr<void*> PoolResource::Impl::Allocate(std::size_t bytes, std::size_t alignment) {
  std::size_t small = bytes;
  if (IsSmall(small, alignment)) return TakeObject(SizeClassOf(small), bytes);
  const std::size_t pages = PagesOf(bytes);
  Shard& shard = MyShard();
  {
    const std::lock_guard lock(shard.lock);
    void* const block = alignment <= kPage ? shard.TakeBlock(pages) : nullptr;
    if (block != nullptr) {
      shard.requested += bytes;
      shard.rounded += pages * kPage;
      internal::Unpoison(block, bytes);
      return block;
    }
  }
  AIT_ASSIGN_OR_RETURN(Span* const span, TakeSpan(pages, alignment, SpanUse::kBlock));
  internal::Unpoison(span->data(), bytes);
  const std::lock_guard lock(shard.lock);
  shard.requested += bytes;
  shard.rounded += pages * kPage;
  return span->data();
}

StatusOr<void*> PoolResource::Impl::TakeObject(std::size_t size_class, std::size_t requested) {
  Shard& shard = MyShard();
  const std::size_t size = BytesOfClass(size_class);
  const auto hand_out = [&](void* object) {
    shard.requested += requested;
    shard.rounded += size;
    internal::Unpoison(object, requested);
    return object;
  };
  {
    const std::lock_guard lock(shard.lock);
    if (std::uint8_t& count = shard.object_count[size_class]; count != 0) {
      shard.object_bytes -= size;
      return hand_out(shard.objects[size_class][--count]);
    }
  }
  std::array<void*, Shard::kObjects> objects;
  std::size_t taken = 0;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      taken = slabs_.Take(size_class, objects.data(), Shard::Capacity(size_class) / 2);
    }
    if (taken != 0) break;
    AIT_ASSIGN_OR_RETURN(Span* const span, TakeSpan(internal::SlabPages(size_class),
                                                    MemoryResource::kMinAlignment, SpanUse::kSlab));
    const std::lock_guard lock(mutex_);
    slabs_.Add(span, size_class);
  }
  std::size_t kept = 1;
  {
    const std::lock_guard lock(shard.lock);
    std::uint8_t& count = shard.object_count[size_class];
    for (; kept < taken && count < Shard::Capacity(size_class); ++kept) {
      shard.objects[size_class][count++] = objects[kept];
      shard.object_bytes += size;
    }
    hand_out(objects[0]);
  }
  if (kept < taken) {
    const std::lock_guard lock(mutex_);
    for (; kept < taken; ++kept) slabs_.Give(objects[kept]);
  }
  return objects[0];
}

void PoolResource::Impl::Deallocate(void* block, std::size_t bytes, std::size_t alignment) {
  if (IsSmall(bytes, alignment)) {
    GiveObject(block, SizeClassOf(bytes));
  } else {
    GiveBlock(block, PagesOf(bytes));
  }
}

void PoolResource::Impl::DeallocateUnsized(void* block) {
  const Span* const span = heap_.SpanAt(block);
  if (span == nullptr) return;
  if (span->use == SpanUse::kSlab) {
    GiveObject(block, span->size_class);
  } else {
    GiveBlock(block, span->pages);
  }
}

std::size_t PoolResource::Impl::UsableSize(const void* block) const {
  const Span* const span = heap_.SpanAt(block);
  if (span == nullptr || span->use == SpanUse::kFree) return 0;
  if (span->use == SpanUse::kSlab) return BytesOfClass(span->size_class);
  return span->data() == block ? span->pages * kPage : 0;
}

void PoolResource::Impl::GiveObject(void* object, std::size_t size_class) {
  const std::size_t size = BytesOfClass(size_class);
  internal::Poison(object, size);
  Shard& shard = MyShard();
  std::array<void*, Shard::kObjects> surplus;
  std::size_t surplus_count = 0;
  {
    const std::lock_guard lock(shard.lock);
    shard.returned += size;
    auto& objects = shard.objects[size_class];
    std::uint8_t& count = shard.object_count[size_class];
    if (count == Shard::Capacity(size_class)) {  // the older half goes
      surplus_count = count / 2;
      std::copy_n(objects.begin(), surplus_count, surplus.begin());
      std::copy(objects.begin() + static_cast<std::ptrdiff_t>(surplus_count),
                objects.begin() + count, objects.begin());
      count = static_cast<std::uint8_t>(count - surplus_count);
      shard.object_bytes -= surplus_count * size;
    }
    objects[count++] = object;
    shard.object_bytes += size;
  }
  if (surplus_count == 0) return;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < surplus_count; ++i) slabs_.Give(surplus[i]);
}

void PoolResource::Impl::GiveBlock(void* block, std::size_t pages) {
  internal::Poison(block, pages * kPage);
  Shard& shard = MyShard();
  std::array<Block, Shard::kBlocks> surplus;
  std::size_t count = 0;
  {
    const std::lock_guard lock(shard.lock);
    shard.returned += pages * kPage;
    if (pages > Shard::kMaxBlockPages || returns_at_once_) {
      surplus[count++] = {block, pages};
    } else {
      while (shard.block_count == Shard::kBlocks ||
             (shard.block_count != 0 && shard.block_pages + pages > Shard::kMaxBlockPages)) {
        // The older half goes, so that this is seldom.
        const std::size_t half = (shard.block_count + 1) / 2;
        for (std::size_t i = 0; i < half; ++i) {
          shard.block_pages -= shard.blocks[i].pages;
          surplus[count++] = shard.blocks[i];
        }
        std::copy(shard.blocks.begin() + static_cast<std::ptrdiff_t>(half),
                  shard.blocks.begin() + shard.block_count, shard.blocks.begin());
        shard.block_count -= static_cast<std::uint32_t>(half);
      }
      shard.blocks[shard.block_count++] = {block, pages};
      shard.block_pages += pages;
    }
  }
  if (count != 0) Return(surplus.data(), count);
}

PoolResource::PoolResource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PoolResource::~PoolResource() = default;

StatusOr<std::shared_ptr<PoolResource>> PoolResource::Create(const PoolOptions& options) {
  if (options.chunk_bytes < Bytes(0) ||
      options.chunk_bytes.value() > static_cast<std::int64_t>(kMaxBytes)) {
    return InvalidArgumentError("cannot make a pool with chunks of ", options.chunk_bytes,
                                " bytes; 0 to ", kMaxBytes, " are possible");
  }
  if (options.idle_time.count() < 0) {
    return InvalidArgumentError("cannot make a pool that keeps idle memory for ",
                                options.idle_time.count(),
                                " ms; zero gives it back at once, milliseconds::max() keeps it");
  }
  if (options.upstream.properties().residence == Residence::kDevice) {
    return InvalidArgumentError("cannot make a pool over ", options.upstream.properties().name,
                                ": it is memory of a device, and a pool serves the host");
  }
  return std::shared_ptr<PoolResource>(new PoolResource(std::make_unique<Impl>(options)));
}

MemoryProperties PoolResource::properties() const {
  MemoryProperties properties = impl_->options().upstream.properties();
  properties.name = "pool(" + properties.name + ")";
  return properties;
}

StatusOr<void*> PoolResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  return impl_->Allocate(bytes, alignment);
}
void PoolResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  impl_->Deallocate(block, bytes, alignment);
}
void PoolResource::DeallocateUnsized(void* block) {
  if (block != nullptr) impl_->DeallocateUnsized(block);
}
std::size_t PoolResource::UsableSize(const void* block) const { return impl_->UsableSize(block); }
Bytes PoolResource::Trim() { return impl_->Trim(); }
PoolStatistics PoolResource::statistics() const { return impl_->statistics(); }

}  // namespace ait::inline v0
