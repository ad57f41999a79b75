// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/pinned.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ait/memory/fork_safe_mutex.h"
#include "ait/memory/heap.h"
#include "ait/memory/numa.h"
#include "memory/mapping_internal.h"
#include "memory/numa_nodes_internal.h"
#include "memory/page_lock_internal.h"
#include "memory/region_allocator_internal.h"

namespace ait::inline v0 {
namespace {

using internal::kPage;
using internal::PageLock;
using internal::RegionAllocator;

// Above it a page more or less does not count: blocks take pages of their own.
constexpr std::size_t kLargestSmall = std::size_t{64} << 10;
constexpr Bytes kLeastSlab = KiB(128);
constexpr Bytes kMostSlab = GiB(1);

std::size_t Up(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }
Bytes InBytes(std::size_t bytes) { return Bytes(static_cast<std::int64_t>(bytes)); }
Bytes Sum(Bytes a, std::size_t b) { return Bytes(a.value() + InBytes(b).value()); }
Bytes Difference(Bytes a, std::size_t b) { return Bytes(a.value() - InBytes(b).value()); }

/// Memory of the resource below that is locked as a whole.
struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t alignment = kPage;
  int node = -1;  // for which it was made
  bool is_locked = false;
  bool is_elsewhere = false;  // and does not lie there, or not all of it

  /// Another that is made later may be better.
  bool is_kept() const { return is_locked && !is_elsewhere; }
};

struct Slab {
  Region region;
  RegionAllocator parts;
};

}  // namespace

class PinnedResource::Impl {
 public:
  Impl(const PinnedOptions& options, internal::NumaNodes nodes, PageLock& lock)
      : options_(options),
        nodes_(std::move(nodes)),
        lock_(lock),
        method_(options.gpus->count() > 0 ? PinMethod::kCuda : PinMethod::kLock) {}

  StatusOr<void*> Allocate(std::size_t bytes, std::size_t alignment);
  void Deallocate(void* block, std::size_t bytes);
  Bytes Trim();
  PinnedCounters counters() const;
  PinMethod method() const { return method_; }
  std::optional<int> node() const { return options_.node; }

 private:
  struct Free {
    Region region;
    std::uint64_t age = 0;
  };
  using NodeAndSize = std::pair<int, std::size_t>;

  bool IsInChild() const { return forks_ != ForkSafeMutex::forks(); }
  int NodeWanted() const;
  bool IsElsewhere(const Region& region) const;
  StatusOr<void*> AllocateSmall(std::size_t bytes, std::size_t alignment, int node);
  StatusOr<void*> AllocateLarge(std::size_t bytes, std::size_t alignment, int node);
  std::optional<Region> TakeFree(std::size_t bytes, std::size_t alignment, int node);
  void* TakePart(Slab& slab, std::size_t bytes, std::size_t alignment);
  void* TakePartOf(int node, bool may_be_elsewhere, std::size_t bytes, std::size_t alignment);
  void TakeOldestAbove(std::int64_t cached, std::vector<Region>& taken);

  StatusOr<Region> Make(std::size_t bytes, std::size_t alignment, int node,
                        const std::function<bool()>& find);
  StatusOr<Region> TryMake(std::size_t bytes, std::size_t alignment, int node);
  Status Lock(const Region& region);
  void GiveUp(const Region& region);

  const PinnedOptions options_;
  const internal::NumaNodes nodes_;
  PageLock& lock_;
  const PinMethod method_;
  const int forks_ = ForkSafeMutex::forks();

  mutable ForkSafeMutex mutex_;
  std::unordered_map<void*, Region> large_;  // blocks that are out
  std::multimap<NodeAndSize, Free> free_;    // blocks that were given back
  std::map<const std::byte*, Slab> slabs_;   // by address
  std::uint64_t next_age_ = 0;
  std::int64_t asked_ = 0;
  std::int64_t taken_ = 0;
  std::int64_t cached_ = 0;  // in free_ and in empty slabs
  PinnedCounters counters_;  // what is locked and how often
};

StatusOr<void*> PinnedResource::Impl::Allocate(std::size_t bytes, std::size_t alignment) {
  if (IsInChild()) {
    return FailedPreconditionError(
        "cannot allocate ", bytes,
        " pinned bytes in a forked child: locks of pages and CUDA do not "
        "pass to it; make a PinnedResource there");
  }
  const int node = NodeWanted();
  return bytes <= kLargestSmall && alignment <= kPage ? AllocateSmall(bytes, alignment, node)
                                                      : AllocateLarge(bytes, alignment, node);
}

void* PinnedResource::Impl::TakePart(Slab& slab, std::size_t bytes, std::size_t alignment) {
  const std::size_t size = Up(bytes, kMinAlignment);
  const bool was_empty = slab.parts.is_empty();
  const std::optional<std::size_t> offset = slab.parts.Allocate(size, alignment);
  if (!offset) return nullptr;
  if (was_empty) cached_ -= static_cast<std::int64_t>(slab.region.bytes);
  asked_ += static_cast<std::int64_t>(bytes);
  taken_ += static_cast<std::int64_t>(size);
  return slab.region.data + *offset;
}

/// A part of a slab that was made for `node`; nullptr if none has room. Under the mutex.
void* PinnedResource::Impl::TakePartOf(int node, bool may_be_elsewhere, std::size_t bytes,
                                       std::size_t alignment) {
  for (auto& [begin, slab] : slabs_) {
    if (slab.region.node != node || (slab.region.is_elsewhere && !may_be_elsewhere)) continue;
    if (void* const block = TakePart(slab, bytes, alignment)) return block;
  }
  return nullptr;
}

StatusOr<void*> PinnedResource::Impl::AllocateSmall(std::size_t bytes, std::size_t alignment,
                                                    int node) {
  {
    const std::lock_guard lock(mutex_);
    if (void* const block = TakePartOf(node, false, bytes, alignment)) return block;
  }
  void* block = nullptr;
  const auto find = [&] {
    const std::lock_guard lock(mutex_);
    block = TakePartOf(node, false, bytes, alignment);
    if (block == nullptr) block = TakePartOf(node, true, bytes, alignment);
    return block != nullptr;
  };
  const StatusOr<Region> region =
      Make(Up(static_cast<std::size_t>(options_.slab.value()), kPage), kPage, node, find);
  // Is the new one elsewhere too, one serves as well as two.
  if (region.ok() && region->is_elsewhere && find()) GiveUp(*region);
  if (block != nullptr) return block;
  AIT_RETURN_IF_ERROR(region.status());
  const std::lock_guard lock(mutex_);
  cached_ += static_cast<std::int64_t>(region->bytes);
  Slab slab = {.region = *region, .parts = RegionAllocator(region->bytes)};
  const auto made = slabs_.emplace(region->data, std::move(slab)).first;
  return TakePart(made->second, bytes, alignment);
}

/// The smallest free block of the node that is not much too large.
std::optional<Region> PinnedResource::Impl::TakeFree(std::size_t bytes, std::size_t alignment,
                                                     int node) {
  for (auto at = free_.lower_bound({node, bytes}); at != free_.end(); ++at) {
    const auto& [key, found] = *at;
    if (key.first != node || key.second > bytes + bytes / 8) break;
    if (reinterpret_cast<std::uintptr_t>(found.region.data) % alignment != 0) continue;
    const Region region = found.region;
    cached_ -= static_cast<std::int64_t>(region.bytes);
    free_.erase(at);
    return region;
  }
  return std::nullopt;
}

StatusOr<void*> PinnedResource::Impl::AllocateLarge(std::size_t bytes, std::size_t alignment,
                                                    int node) {
  const std::size_t size = Up(bytes, kPage);
  std::optional<Region> region;
  {
    const std::lock_guard lock(mutex_);
    region = TakeFree(size, alignment, node);
  }
  if (!region) {
    const auto find = [&] {
      const std::lock_guard lock(mutex_);
      region = TakeFree(size, alignment, node);
      return region.has_value();
    };
    const StatusOr<Region> made = Make(size, std::max(alignment, kPage), node, find);
    if (made.ok()) region = *made;
    if (!region) return made.status();
  }
  const std::lock_guard lock(mutex_);
  asked_ += static_cast<std::int64_t>(bytes);
  taken_ += static_cast<std::int64_t>(region->bytes);
  large_.emplace(region->data, *region);
  return static_cast<void*>(region->data);
}

void PinnedResource::Impl::Deallocate(void* block, std::size_t bytes) {
  if (IsInChild()) return;
  std::vector<Region> evicted;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = large_.find(block); found != large_.end()) {
      const Region region = found->second;
      large_.erase(found);
      asked_ -= static_cast<std::int64_t>(bytes);
      taken_ -= static_cast<std::int64_t>(region.bytes);
      if (!region.is_kept()) {
        evicted.push_back(region);
      } else {
        cached_ += static_cast<std::int64_t>(region.bytes);
        free_.emplace(NodeAndSize(region.node, region.bytes), Free{region, next_age_++});
      }
    } else {
      auto* const begin = static_cast<std::byte*>(block);
      const auto next = slabs_.upper_bound(begin);
      if (next == slabs_.begin()) return;  // not ours
      Slab& slab = std::prev(next)->second;
      const std::size_t size = Up(bytes, kMinAlignment);
      if (!slab.parts.Free(static_cast<std::size_t>(begin - slab.region.data), size)) return;
      asked_ -= static_cast<std::int64_t>(bytes);
      taken_ -= static_cast<std::int64_t>(size);
      if (slab.parts.is_empty() && !slab.region.is_kept()) {
        evicted.push_back(slab.region);
        slabs_.erase(std::prev(next));
      } else if (slab.parts.is_empty()) {
        cached_ += static_cast<std::int64_t>(slab.region.bytes);
      }
    }
    TakeOldestAbove(std::max<std::int64_t>(options_.max_cached.value(), 0), evicted);
  }
  for (const Region& region : evicted) GiveUp(region);
}

/// Takes free memory out of the books, the longest unused first and slabs last, until at most
/// `cached` bytes are left. Under the mutex; the caller gives it up without.
void PinnedResource::Impl::TakeOldestAbove(std::int64_t cached, std::vector<Region>& taken) {
  while (cached_ > cached && !free_.empty()) {
    const auto oldest =
        std::ranges::min_element(free_, {}, [](const auto& entry) { return entry.second.age; });
    taken.push_back(oldest->second.region);
    cached_ -= static_cast<std::int64_t>(oldest->second.region.bytes);
    free_.erase(oldest);
  }
  for (auto at = slabs_.begin(); at != slabs_.end() && cached_ > cached;) {
    if (!at->second.parts.is_empty()) {
      ++at;
      continue;
    }
    taken.push_back(at->second.region);
    cached_ -= static_cast<std::int64_t>(at->second.region.bytes);
    at = slabs_.erase(at);
  }
}

Bytes PinnedResource::Impl::Trim() {
  if (IsInChild()) return Bytes(0);
  std::vector<Region> taken;
  {
    const std::lock_guard lock(mutex_);
    TakeOldestAbove(0, taken);
  }
  std::size_t bytes = 0;
  for (const Region& region : taken) {
    bytes += region.bytes;
    GiveUp(region);
  }
  return InBytes(bytes);
}

/// Makes a region. Where it cannot be had, `find` looks again for what other threads have given back
/// meanwhile: before what is kept goes, and at the end. Then the error does not count.
StatusOr<Region> PinnedResource::Impl::Make(std::size_t bytes, std::size_t alignment, int node,
                                            const std::function<bool()>& find) {
  StatusOr<Region> region = TryMake(bytes, alignment, node);
  if (region.status().code() != StatusCode::kResourceExhausted || find()) return region;
  if (Trim() > Bytes(0)) region = TryMake(bytes, alignment, node);
  if (!region.ok()) find();
  return region;
}

StatusOr<Region> PinnedResource::Impl::TryMake(std::size_t bytes, std::size_t alignment, int node) {
  Status locked =
      method_ == PinMethod::kLock ? internal::CheckLockLimit(bytes, options_.roots) : OkStatus();
  if (!locked.ok() && options_.on_failure == PinFailure::kFail) return locked;
  AIT_ASSIGN_OR_RETURN(void* const block, options_.upstream.Allocate(bytes, alignment));
  Region region = {
      .data = static_cast<std::byte*>(block), .bytes = bytes, .alignment = alignment, .node = node};
  if (locked.ok()) locked = Lock(region);
  if (!locked.ok() && options_.on_failure == PinFailure::kFail) {
    options_.upstream.Deallocate(block, bytes, alignment);
    return locked;
  }
  region.is_locked = locked.ok();
  region.is_elsewhere = region.is_locked && node >= 0 && IsElsewhere(region);
  const std::lock_guard lock(mutex_);
  if (region.is_locked) {
    counters_.locked = Sum(counters_.locked, bytes);
    ++counters_.locks;
    if (region.is_elsewhere) counters_.misplaced = Sum(counters_.misplaced, bytes);
  } else {
    counters_.pageable = Sum(counters_.pageable, bytes);
    if (counters_.pageable_count++ == 0) counters_.pageable_reason = Message(locked);
  }
  return region;
}

/// The node that memory shall lie on; -1 if unknown. Of a thread on a node without memory, the
/// nearest that has some, where its pages come from.
int PinnedResource::Impl::NodeWanted() const {
  if (options_.node) return *options_.node;
  const int node = lock_.CurrentNode();
  return nodes_.online.contains(node) ? nodes_.NearestWithMemory(node).value_or(node) : node;
}

/// Locked pages exist, so they say where they are: elsewhere if the node was full or became so, or
/// the thread has moved meanwhile. Some pages tell for all.
bool PinnedResource::Impl::IsElsewhere(const Region& region) const {
  constexpr std::size_t kSamples = 16;
  const std::size_t pages = region.bytes / kPage;
  const std::size_t samples = std::min(pages, kSamples);
  for (std::size_t i = 0; i < samples; ++i) {  // the first and the last among them
    const std::size_t page = samples == 1 ? 0 : i * (pages - 1) / (samples - 1);
    const int actual = lock_.NodeOf(region.data + page * kPage);
    if (actual >= 0 && actual != region.node) return true;
  }
  return false;
}

Status PinnedResource::Impl::Lock(const Region& region) {
  if (method_ == PinMethod::kCuda) return options_.gpus->Pin(region.data, InBytes(region.bytes));
  const int error = lock_.Lock(region.data, region.bytes);
  if (error == 0) return OkStatus();
  // The limit may have been lowered, or memory been locked, since it was checked.
  AIT_RETURN_IF_ERROR(internal::CheckLockLimit(region.bytes, options_.roots));
  return ResourceExhaustedError("cannot lock ", region.bytes,
                                " bytes: mlock: ", std::generic_category().message(error),
                                "; the limit of locked memory (ulimit -l), or what a container or "
                                "the machine has left, is used up");
}

void PinnedResource::Impl::GiveUp(const Region& region) {
  if (region.is_locked && method_ == PinMethod::kLock) lock_.Unlock(region.data, region.bytes);
  // What CUDA still reads and writes must not become somebody else's: rather lost than that. It
  // happens at the end of a process, when CUDA has gone first.
  if (region.is_locked && method_ == PinMethod::kCuda && !options_.gpus->Unpin(region.data).ok()) {
    return;
  }
  options_.upstream.Deallocate(region.data, region.bytes, region.alignment);
  const std::lock_guard lock(mutex_);
  Bytes& held = region.is_locked ? counters_.locked : counters_.pageable;
  held = Difference(held, region.bytes);
  if (region.is_elsewhere) counters_.misplaced = Difference(counters_.misplaced, region.bytes);
}

PinnedCounters PinnedResource::Impl::counters() const {
  const std::lock_guard lock(mutex_);
  PinnedCounters counters = counters_;
  counters.asked = Bytes(asked_);
  counters.waste = Bytes(taken_ - asked_);
  counters.cached = Bytes(counters.locked.value() + counters.pageable.value() - taken_);
  return counters;
}

namespace {

StatusOr<PinnedOptions> Complete(PinnedOptions options) {
  if (options.slab < kLeastSlab || options.slab > kMostSlab) {
    return InvalidArgumentError("a slab of pinned memory of ", options.slab, " bytes; allowed are ",
                                kLeastSlab, " to ", kMostSlab);
  }
  if (options.gpus == nullptr) options.gpus = DeviceRuntime::Open();
  if (!options.upstream && options.node) {
    AIT_ASSIGN_OR_RETURN(options.upstream, NumaResource::Create({.nodes = NodeSet({*options.node}),
                                                                 .max_cached = Bytes(0),
                                                                 .roots = options.roots}));
    return options;
  }
  if (!options.upstream) options.upstream = HeapResource::Create({.max_cached = Bytes(0)});
  const MemoryProperties below = options.upstream.properties();
  if (below.residence != Residence::kHost) {
    return InvalidArgumentError("cannot pin memory of ", below.name,
                                ", which is a device's; pinned memory is the host's");
  }
  if (options.node && options.node != below.node) {
    return InvalidArgumentError(
        "cannot pin on node ", *options.node, " what ", below.name,
        below.node ? StrCat(" puts on node ", *below.node) : " puts on any node",
        "; give no resource below, or a NumaResource on that node");
  }
  options.node = below.node;
  return options;
}

}  // namespace

StatusOr<std::shared_ptr<PinnedResource>> PinnedResourceMaker::Make(const PinnedOptions& options,
                                                                    PageLock& lock) {
  AIT_ASSIGN_OR_RETURN(const PinnedOptions complete, Complete(options));
  AIT_ASSIGN_OR_RETURN(internal::NumaNodes nodes, internal::ReadNumaNodes(complete.roots));
  return std::shared_ptr<PinnedResource>(new PinnedResource(
      complete.upstream, std::make_unique<PinnedResource::Impl>(complete, std::move(nodes), lock)));
}

StatusOr<std::shared_ptr<PinnedResource>> PinnedResource::Create(const PinnedOptions& options) {
  return PinnedResourceMaker::Make(options, PageLock::System());
}

PinnedResource::PinnedResource(MemoryHandle upstream, std::unique_ptr<Impl> impl)
    : MemoryAdaptor("pinned", std::move(upstream)), impl_(std::move(impl)) {}

PinnedResource::~PinnedResource() { Trim(); }

MemoryProperties PinnedResource::properties() const {
  MemoryProperties properties = MemoryAdaptor::properties();
  properties.node = impl_->node();
  return properties;
}

PinMethod PinnedResource::method() const { return impl_->method(); }
PinnedCounters PinnedResource::counters() const { return impl_->counters(); }
Bytes PinnedResource::Trim() { return impl_->Trim(); }

StatusOr<void*> PinnedResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  return impl_->Allocate(bytes, alignment);
}

void PinnedResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  (void)alignment;
  impl_->Deallocate(block, bytes);
}

}  // namespace ait::inline v0
