// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/numa.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "ait/memory/fork_safe_mutex.h"
#include "memory/mapping_internal.h"
#include "memory/numa_maker_internal.h"
#include "memory/numa_placer_internal.h"
#include "memory/region_allocator_internal.h"

namespace ait::inline v0 {
namespace {

using internal::kHugePage;
using internal::NumaOps;
using internal::NumaPlacer;
using internal::NumaTarget;
using internal::PlacedMapping;
using internal::RegionAllocator;

Bytes Signed(std::size_t bytes) { return Bytes(static_cast<std::int64_t>(bytes)); }

std::size_t RoundTo(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step * step;
}

std::string NameOf(const NumaOptions& options, const NodeSet& nodes) {
  const auto name = [&](const char* policy) {
    if (nodes.empty()) return StrCat("numa(", policy, ")");
    return StrCat("numa(", policy, nodes.size() == 1 ? ", node " : ", nodes ", nodes.ToString(),
                  ")");
  };
  switch (options.policy) {
    case NumaPolicy::kPreferred:
      return name("preferred");
    case NumaPolicy::kStrict:
      return name("strict");
    case NumaPolicy::kInterleave:
      return name("interleave");
    case NumaPolicy::kWeighted:
      return name("weighted");
    case NumaPolicy::kLocal:
      return "numa(local)";
  }
  return "numa";
}

}  // namespace

class NumaResource::Impl {
 public:
  Impl(const NumaOptions& options, NodeSet nodes, internal::NumaNodes machine, NumaOps& ops)
      : options_(options),
        nodes_(std::move(nodes)),
        ops_(ops),
        placer_(ops, options_, std::move(machine)),
        chunk_bytes_(RoundTo(static_cast<std::size_t>(options.chunk.value()), kHugePage)) {
    MakeArenas();
  }

  ~Impl() { Trim(); }

  StatusOr<void*> Allocate(std::size_t bytes, std::size_t alignment) {
    const std::size_t rounded = RoundTo(bytes, kMinAlignment);
    const bool is_large = rounded > chunk_bytes_ / 4;
    std::unique_lock lock(mutex_);
    const std::size_t arena = ChooseArena(is_large, rounded);
    for (bool again : {true, false}) {
      StatusOr<void*> block =
          is_large ? AllocateLarge(arena, rounded, lock) : AllocateSmall(arena, rounded, alignment);
      if (block.ok() || !again || cached_ == 0) return Explain(std::move(block), bytes);
      lock.unlock();
      Trim();  // and once more with what that gave back
      lock.lock();
    }
    return InternalError("unreachable");
  }

  void Deallocate(void* block, std::size_t bytes) {
    const std::size_t rounded = RoundTo(bytes, kMinAlignment);
    std::vector<PlacedMapping> evicted;
    {
      const std::lock_guard lock(mutex_);
      const auto found = Find(block);
      if (found == chunks_.end()) return;  // not ours: leave it
      Chunk& chunk = found->second;
      const auto offset =
          static_cast<std::size_t>(static_cast<std::byte*>(block) - chunk.mapping.data);
      if (!chunk.regions.Free(offset, rounded)) return;
      used_ -= rounded;
      arenas_[chunk.arena].used -= rounded;
      if (chunk.regions.is_empty()) {
        cached_ += chunk.mapping.bytes;
        chunk.freed_at = ++clock_;
        evicted =
            Evict(static_cast<std::size_t>(std::max<std::int64_t>(options_.max_cached.value(), 0)));
      }
    }
    for (const PlacedMapping& mapping : evicted) placer_.Unmap(mapping);
  }

  Bytes Trim() {
    std::vector<PlacedMapping> evicted;
    {
      const std::lock_guard lock(mutex_);
      evicted = Evict(0);
    }
    std::size_t bytes = 0;
    for (const PlacedMapping& mapping : evicted) {
      placer_.Unmap(mapping);
      bytes += mapping.bytes;
    }
    return Signed(bytes);
  }

  PlacementReport Verify(const void* block, std::size_t bytes) const {
    PlacementExpectation expected;
    {
      const std::lock_guard lock(mutex_);
      const auto found = Find(block);
      if (found == chunks_.end()) {
        return {.reason = "it is not a block of this resource", .unknown = Signed(bytes)};
      }
      const Chunk& chunk = found->second;
      expected = arenas_[chunk.arena].target.expectation();
    }
    return Explain(internal::VerifyPlacement(ops_, block, bytes, expected, options_.roots));
  }

  PlacementReport Verify() const {
    struct Part {
      const std::byte* data;
      std::size_t bytes;
      PlacementExpectation expected;
    };
    std::vector<Part> parts;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [address, chunk] : chunks_) {
        const PlacedMapping& mapping = chunk.mapping;
        const std::size_t bytes = mapping.touched > 0 ? mapping.touched : mapping.bytes;
        // The part of a split mapping that is touched need not have the shares of the whole.
        PlacementExpectation expected = arenas_[chunk.arena].target.expectation();
        if (bytes < mapping.bytes && options_.policy == NumaPolicy::kWeighted) {
          expected.weights.clear();
        }
        parts.push_back({mapping.data, bytes, std::move(expected)});
      }
    }
    PlacementReport all;
    if (parts.empty()) all.reason = "the resource holds no memory";
    for (const Part& part : parts) {
      internal::AddReport(
          internal::VerifyPlacement(ops_, part.data, part.bytes, part.expected, options_.roots),
          all);
    }
    return Explain(std::move(all));
  }

  NumaCounters counters() const {
    const std::lock_guard lock(mutex_);
    NumaCounters counters = {.used = Signed(used_),
                             .cached = Signed(cached_),
                             .mappings = static_cast<int>(chunks_.size()),
                             .maps = maps_,
                             .bindings = bindings_,
                             .shortages = shortages_};
    for (const auto& [address, chunk] : chunks_) {
      const Bytes bytes = Signed(chunk.mapping.bytes);
      counters.mapped = Bytes(counters.mapped.value() + bytes.value());
      if (chunk.mapping.pages != PageKind::kReservedHuge) continue;
      counters.reserved_huge = Bytes(counters.reserved_huge.value() + bytes.value());
    }
    return counters;
  }

  std::string name() const { return NameOf(options_, nodes_); }
  const NodeSet& nodes() const { return nodes_; }
  const NumaCapabilities& capabilities() const { return placer_.capabilities(); }

 private:
  /// Mappings with one target.
  struct Arena {
    NumaTarget target;
    std::size_t used = 0;  // bytes in blocks
  };
  /// A mapping that is divided into blocks, or has one that takes all of it.
  struct Chunk {
    PlacedMapping mapping;
    RegionAllocator regions;
    std::size_t arena = 0;
    bool is_large = false;       // one block
    std::uint64_t freed_at = 0;  // when it became empty, by clock_
  };
  using Chunks = std::map<const std::byte*, Chunk>;  // by address

  void MakeArenas() {
    if (options_.policy == NumaPolicy::kLocal || options_.policy == NumaPolicy::kWeighted) {
      for (int node : nodes_) arenas_.push_back({.target = {.nodes = {node}}});
    }
    if (options_.policy == NumaPolicy::kLocal && !arenas_.empty()) return;
    arenas_.push_back(
        {.target = {.policy = options_.policy == NumaPolicy::kLocal ? NumaPolicy::kPreferred
                                                                    : options_.policy,
                    .nodes = nodes_,
                    .weights = options_.weights}});
  }

  /// The arena of a new block. Local: that of the thread's node. Weighted: large blocks are split,
  /// small ones go to the node that has least of its share.
  std::size_t ChooseArena(bool is_large, std::size_t bytes) const {
    if (options_.policy == NumaPolicy::kLocal && !nodes_.empty()) {
      const int node = placer_.nodes().NearestWithMemory(ops_.CurrentNode()).value_or(-1);
      const auto found = std::find(nodes_.begin(), nodes_.end(), node);
      return found == nodes_.end() ? 0 : static_cast<std::size_t>(found - nodes_.begin());
    }
    if (options_.policy != NumaPolicy::kWeighted || is_large) return arenas_.size() - 1;
    std::size_t best = 0;
    double best_fill = 0;
    for (std::size_t i = 0; i < options_.weights.size(); ++i) {
      const double fill =
          static_cast<double>(arenas_[i].used + bytes) / static_cast<double>(options_.weights[i]);
      if (i == 0 || fill < best_fill) best = i;
      best_fill = i == 0 ? fill : std::min(best_fill, fill);
    }
    return best;
  }

  StatusOr<void*> AllocateSmall(std::size_t arena, std::size_t bytes, std::size_t alignment) {
    Status shortage;  // of pages for a gap; another chunk may have one whose pages exist
    for (auto& [address, chunk] : chunks_) {
      if (chunk.arena != arena || chunk.is_large || chunk.regions.free_bytes() < bytes) continue;
      StatusOr<void*> block = TakeRegion(chunk, bytes, alignment);
      if (block.ok() && *block == nullptr) continue;
      if (block.status().code() != StatusCode::kResourceExhausted) return block;
      shortage = block.status();
    }
    AIT_RETURN_IF_ERROR(shortage);
    StatusOr<PlacedMapping> mapping = placer_.Map(arenas_[arena].target, chunk_bytes_);
    if (!mapping.ok() && mapping.status().code() == StatusCode::kResourceExhausted) {
      mapping = placer_.Map(arenas_[arena].target, RoundTo(bytes, kHugePage));  // just enough
    }
    AIT_RETURN_IF_ERROR(mapping.status());
    return TakeRegion(Insert(*mapping, arena, false), bytes, alignment);
  }

  /// A block of `chunk` whose pages exist; nullptr if no gap fits.
  StatusOr<void*> TakeRegion(Chunk& chunk, std::size_t bytes, std::size_t alignment) {
    const bool was_empty = chunk.regions.is_empty();
    const std::optional<std::size_t> offset = chunk.regions.Allocate(bytes, alignment);
    if (!offset) return nullptr;
    const Status touched =
        placer_.Touch(arenas_[chunk.arena].target, *offset + bytes, chunk.mapping);
    if (!touched.ok()) {
      chunk.regions.Free(*offset, bytes);
      return touched;
    }
    if (was_empty) cached_ -= chunk.mapping.bytes;
    Use(chunk, bytes);
    return static_cast<void*>(chunk.mapping.data + *offset);
  }

  /// Reuses a mapping that is at most an eighth too large, or makes one without holding the lock.
  StatusOr<void*> AllocateLarge(std::size_t arena, std::size_t bytes,
                                std::unique_lock<ForkSafeMutex>& lock) {
    Chunk* best = nullptr;
    for (auto& [address, chunk] : chunks_) {
      if (!chunk.is_large || chunk.arena != arena || !chunk.regions.is_empty()) continue;
      const std::size_t size = chunk.mapping.bytes;
      if (size < bytes || size - bytes > bytes / 8) continue;
      if (best == nullptr || size < best->mapping.bytes ||
          (size == best->mapping.bytes && chunk.freed_at > best->freed_at)) {
        best = &chunk;
      }
    }
    if (best != nullptr) return TakeRegion(*best, bytes, kMinAlignment);
    const NumaTarget& target = arenas_[arena].target;
    lock.unlock();
    StatusOr<PlacedMapping> mapping = placer_.Map(target, bytes);
    Status status = mapping.status();
    if (status.ok()) {
      status = placer_.Touch(target, mapping->bytes, *mapping);
      if (!status.ok()) placer_.Unmap(*mapping);
    }
    lock.lock();
    AIT_RETURN_IF_ERROR(status);
    return TakeRegion(Insert(*mapping, arena, true), bytes, kMinAlignment);
  }

  Chunk& Insert(const PlacedMapping& mapping, std::size_t arena, bool is_large) {
    ++maps_;
    bindings_ += mapping.bindings;
    shortages_ += mapping.was_short ? 1 : 0;
    cached_ += mapping.bytes;  // until it has a block
    return chunks_
        .insert_or_assign(mapping.data,
                          Chunk{mapping, RegionAllocator(mapping.bytes), arena, is_large, ++clock_})
        .first->second;
  }

  void Use(Chunk& chunk, std::size_t bytes) {
    used_ += bytes;
    arenas_[chunk.arena].used += bytes;
  }

  Chunks::iterator Find(const void* block) {
    const auto after = chunks_.upper_bound(static_cast<const std::byte*>(block));
    if (after == chunks_.begin()) return chunks_.end();
    const auto found = std::prev(after);
    const auto offset = static_cast<const std::byte*>(block) - found->first;
    return static_cast<std::size_t>(offset) < found->second.mapping.bytes ? found : chunks_.end();
  }
  Chunks::const_iterator Find(const void* block) const {
    return const_cast<Impl*>(this)->Find(block);
  }

  /// Takes out mappings without a block, the oldest first, until at most `most` bytes are in such.
  std::vector<PlacedMapping> Evict(std::size_t most) {
    std::vector<PlacedMapping> evicted;
    while (cached_ > most) {
      auto oldest = chunks_.end();
      for (auto at = chunks_.begin(); at != chunks_.end(); ++at) {
        if (!at->second.regions.is_empty()) continue;
        if (oldest == chunks_.end() || at->second.freed_at < oldest->second.freed_at) oldest = at;
      }
      if (oldest == chunks_.end()) break;
      cached_ -= oldest->second.mapping.bytes;
      evicted.push_back(oldest->second.mapping);
      chunks_.erase(oldest);
    }
    return evicted;
  }

  StatusOr<void*> Explain(StatusOr<void*> block, std::size_t bytes) const {
    if (block.ok()) return block;
    return Annotate(block.status(), StrCat("cannot allocate ", bytes, " bytes from ", name()));
  }

  /// Says why memory may lie elsewhere.
  PlacementReport Explain(PlacementReport report) const {
    if (report.verdict == PlacementVerdict::kVerified) return report;
    if (!placer_.nodes().is_known && nodes_.empty()) report.reason = placer_.nodes().why_unknown;
    if (!capabilities().bind.is_allowed) {
      report.reason += StrCat("; binding is forbidden (", capabilities().bind.reason, ")");
    }
    return report;
  }

  const NumaOptions options_;
  const NodeSet nodes_;
  NumaOps& ops_;
  const NumaPlacer placer_;
  const std::size_t chunk_bytes_;
  mutable ForkSafeMutex mutex_;
  std::vector<Arena> arenas_;  // their targets do not change
  Chunks chunks_;
  std::size_t used_ = 0;
  std::size_t cached_ = 0;  // in mappings without a block
  std::uint64_t clock_ = 0;
  std::int64_t maps_ = 0;
  std::int64_t bindings_ = 0;
  std::int64_t shortages_ = 0;
};

StatusOr<std::shared_ptr<NumaResource>> NumaResourceMaker::Make(const NumaOptions& options,
                                                                NumaOps& ops) {
  if (options.chunk < Bytes(static_cast<std::int64_t>(kHugePage)) || options.chunk > GiB(1024)) {
    return InvalidArgumentError("cannot make a NUMA resource with chunks of ", options.chunk,
                                " bytes; a chunk has from 2 MiB to 1 TiB");
  }
  AIT_ASSIGN_OR_RETURN(internal::NumaNodes machine, internal::ReadNumaNodes(options.roots));
  const StatusOr<NodeSet> nodes = internal::ResolveNodes(machine, options, ops.CurrentNode());
  if (!nodes.ok()) return Annotate(nodes.status(), "cannot make a NUMA resource");
  return std::shared_ptr<NumaResource>(new NumaResource(
      std::make_unique<NumaResource::Impl>(options, *nodes, std::move(machine), ops)));
}

StatusOr<std::shared_ptr<NumaResource>> NumaResource::Create(const NumaOptions& options) {
  return NumaResourceMaker::Make(options, NumaOps::System());
}

NumaResource::NumaResource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NumaResource::~NumaResource() = default;

MemoryProperties NumaResource::properties() const {
  const bool is_one = nodes().size() == 1;
  return {.name = impl_->name(), .node = is_one ? std::optional(nodes().front()) : std::nullopt};
}
const NodeSet& NumaResource::nodes() const { return impl_->nodes(); }
const NumaCapabilities& NumaResource::capabilities() const { return impl_->capabilities(); }
NumaCounters NumaResource::counters() const { return impl_->counters(); }
Bytes NumaResource::Trim() { return impl_->Trim(); }

PlacementReport NumaResource::Verify(const void* block, std::size_t bytes) const {
  return impl_->Verify(block, bytes);
}
PlacementReport NumaResource::Verify() const { return impl_->Verify(); }

StatusOr<void*> NumaResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  return impl_->Allocate(bytes, alignment);
}

void NumaResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  (void)alignment;
  impl_->Deallocate(block, bytes);
}

}  // namespace ait::inline v0
