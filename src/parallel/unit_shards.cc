// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ait/memory/heap.h"
#include "parallel/hash_internal.h"
#include "parallel/unit_shards_internal.h"

namespace ait::inline v0::internal {
namespace {

// Larger units do not fit in the caches: written past them, they are read from memory once.
constexpr std::int64_t kStreamedBytes = std::int64_t{16} << 20;

std::int64_t Total(const std::vector<std::int64_t>& counts) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  return total;
}

}  // namespace

StatusOr<std::unique_ptr<UnitShards>> UnitShards::Create(std::shared_ptr<Communicator> communicator,
                                                         std::vector<std::string> units,
                                                         std::vector<ShardedBucket> buckets,
                                                         UnitShardsOptions options) {
  auto shards = std::unique_ptr<UnitShards>(new UnitShards);
  const auto ranks = static_cast<std::size_t>(communicator->size().value());
  const auto rank = static_cast<std::size_t>(communicator->rank().value());
  for (std::string& name : units) shards->units_.emplace_back().name = std::move(name);
  std::vector<std::int64_t> shard_bytes(ranks);
  for (ShardedBucket& given : buckets) {
    Unit& unit = shards->unit_at(given.unit);
    unit.buckets.push_back(static_cast<int>(shards->buckets_.size()));
    Bucket& bucket = shards->buckets_.emplace_back();
    bucket.of = std::move(given);
    bucket.begin = unit.bytes;
    bucket.shard_begin = shard_bytes;
    unit.bytes += Total(bucket.of.slice_counts) * SizeOf(bucket.of.dtype);
    for (std::size_t r = 0; r < ranks; ++r) {
      shard_bytes[r] += bucket.of.slice_counts[r] * SizeOf(bucket.of.dtype);
    }
  }
  if (!options.memory) options.memory = HeapResource::Create();
  if (!options.whole_memory) options.whole_memory = HeapResource::Create({.max_cached = Bytes(0)});
  shards->shard_bytes_ = shard_bytes[rank];
  shards->spare_.reserve(static_cast<std::size_t>(std::max(options.prefetch, 0)) + 1);
  // Addresses are exchanged for buffers of one size: that of the largest, of which the rest is
  // never touched.
  const std::int64_t largest = *std::ranges::max_element(shard_bytes);
  AIT_ASSIGN_OR_RETURN(shards->shards_,
                       HostBuffer::Create(options.memory, static_cast<std::size_t>(largest)));
  AIT_ASSIGN_OR_RETURN(
      shards->addresses_,
      communicator->PeerAddresses({shards->shards_.data(), largest, DType::kUInt8},
                                  {.timeout = options.operation.timeout, .label = "shards"}));
  if (shards->is_direct()) {
    shards->communicator_ = std::move(communicator);
    if (options.prefetch > 0 && ranks > 1) {
      AIT_ASSIGN_OR_RETURN(shards->thread_, CopyThread::Start());
    }
  } else {  // so that gathers ahead keep their order whatever else is under way
    AIT_ASSIGN_OR_RETURN(
        shards->communicator_,
        communicator->Split(0, communicator->rank().value(),
                            {.timeout = options.operation.timeout, .label = "units"}));
  }
  shards->options_ = std::move(options);
  return shards;
}

UnitShards::~UnitShards() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    if (!unit_at(unit).works.empty() && !unit_at(unit).is_whole) {
      communicator_->Abort(AbortedError("the data-parallel engine of rank ", communicator_->rank(),
                                        " was destroyed while it gathered"));
    }
    Drop(unit);
  }
}

Buffer UnitShards::shard(int b) const {
  const Bucket& bucket = buckets_[static_cast<std::size_t>(b)];
  const auto rank = static_cast<std::size_t>(communicator_->rank().value());
  std::byte* const begin = const_cast<std::byte*>(shards_.data());
  return {begin == nullptr ? nullptr : begin + bucket.shard_begin[rank],
          bucket.of.slice_counts[rank], bucket.of.dtype};
}

StatusOr<HostBuffer> UnitShards::TakeBlock(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  auto best = spare_.end();
  for (auto it = spare_.begin(); it != spare_.end(); ++it) {
    if (it->size_bytes() >= size && (best == spare_.end() || it->size_bytes() < best->size_bytes()))
      best = it;
  }
  if (best != spare_.end()) {
    HostBuffer block = std::move(*best);
    spare_.erase(best);
    return block;
  }
  if (!spare_.empty()) {  // one that is too small makes room, so that blocks do not add up
    block_bytes_ -= static_cast<std::int64_t>(spare_.back().size_bytes());
    spare_.pop_back();
  }
  AIT_ASSIGN_OR_RETURN(HostBuffer block, HostBuffer::Create(options_.whole_memory, size));
  block_bytes_ += bytes;
  peak_block_bytes_ = std::max(peak_block_bytes_, block_bytes_);
  return block;
}

void UnitShards::GiveBlock(HostBuffer block) {
  if (block.data() == nullptr) return;
  // As many as the next units will want; more there are only after all were whole. There is room:
  // blocks are given back where nothing may throw.
  if (std::ssize(spare_) <= options_.prefetch) {
    spare_.push_back(std::move(block));
  } else {
    block_bytes_ -= static_cast<std::int64_t>(block.size_bytes());
  }
}

StatusOr<std::byte*> UnitShards::Take(int u) {
  Unit& unit = unit_at(u);
  if (unit.block.data() == nullptr && unit.bytes > 0) {
    StatusOr<HostBuffer> block = TakeBlock(unit.bytes);
    if (!block.ok()) return Annotate(block.status(), StrCat("gathering unit ", unit.name));
    unit.block = *std::move(block);
  }
  unit.is_whole = true;  // for whom fills it
  return unit.block.data();
}

Status UnitShards::Start(int u) {
  Unit& unit = unit_at(u);
  if (unit.is_whole || unit.block.data() != nullptr || unit.bytes == 0) return OkStatus();
  AIT_RETURN_IF_ERROR(Take(u).status());
  unit.is_whole = false;
  ++counters_.gathers;
  counters_.bytes += unit.bytes;
  is_direct() ? StartCopies(unit) : StartCollectives(unit);
  return OkStatus();
}

void UnitShards::StartCopies(Unit& unit) {
  unit.job = std::make_shared<CopyJob>(unit.bytes >= kStreamedBytes ? Stores::kStreaming
                                                                    : Stores::kCached);
  for (const int b : unit.buckets) {
    const Bucket& bucket = buckets_[static_cast<std::size_t>(b)];
    std::byte* to = unit.block.data() + bucket.begin;
    for (std::size_t r = 0; r < addresses_.size(); ++r) {
      const std::int64_t bytes = bucket.of.slice_counts[r] * SizeOf(bucket.of.dtype);
      unit.job->Add(to, static_cast<const std::byte*>(addresses_[r]) + bucket.shard_begin[r],
                    bytes);
      to += bytes;
    }
  }
  if (thread_ != nullptr) thread_->Push(unit.job);
}

void UnitShards::StartCollectives(Unit& unit) {
  const auto rank = static_cast<std::ptrdiff_t>(communicator_->rank().value());
  order_.push_back(&unit - units_.data());
  for (const int b : unit.buckets) {
    const ShardedBucket& bucket = buckets_[static_cast<std::size_t>(b)].of;
    const Buffer whole{unit.block.data() + begin(b), Total(bucket.slice_counts), bucket.dtype};
    if (whole.count == 0) continue;
    std::int64_t before = 0;
    for (std::ptrdiff_t r = 0; r < rank; ++r)
      before += bucket.slice_counts[static_cast<std::size_t>(r)];
    const Buffer own = shard(b);
    const Buffer part = whole.Slice(before, own.count);
    if (own.count > 0) {
      CopyBytes(part.data, own.data, static_cast<std::size_t>(own.bytes().value()));
    }
    unit.works.push_back(communicator_->AllGather(
        part, whole, bucket.slice_counts,
        {.timeout = options_.operation.timeout, .label = StrCat("unit ", unit.name)}));
  }
}

Status UnitShards::CheckOrder() {
  std::vector<std::int64_t> order = std::exchange(order_, {});
  const int ranks = communicator_->size().value();
  if (is_direct() || ranks == 1) return OkStatus();
  std::array<std::int64_t, 2> own = {
      static_cast<std::int64_t>(HashBytes(order.data(), order.size() * sizeof(std::int64_t))),
      std::ssize(order)};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(ranks));
  OperationOptions options = options_.operation;
  options.label = "order of the units";
  AIT_RETURN_IF_ERROR(communicator_->AllGather(View(own), View(all), options).Wait());
  std::int64_t longest = 0;
  bool differs = false;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    longest = std::max(longest, all[i + 1]);
    differs = differs || all[i] != all[0] || all[i + 1] != all[1];
  }
  return differs ? DescribeDifference(std::move(order), longest) : OkStatus();
}

Status UnitShards::DescribeDifference(std::vector<std::int64_t> order, std::int64_t longest) {
  const auto length = static_cast<std::size_t>(longest);
  const auto ranks = static_cast<std::size_t>(communicator_->size().value());
  order.resize(length, -1);
  std::vector<std::int64_t> all(length * ranks);
  OperationOptions options = options_.operation;
  options.label = "units in order";
  AIT_RETURN_IF_ERROR(communicator_->AllGather(View(order), View(all), options).Wait());
  const auto name_at = [&](std::size_t rank, std::size_t i) {
    const std::int64_t unit = all[rank * length + i];
    return unit < 0 ? std::string("nothing") : name(static_cast<int>(unit));
  };
  for (std::size_t i = 0; i < length; ++i) {
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      if (all[rank * length + i] == all[i]) continue;
      return InvalidArgumentError(
          "units were gathered in different orders: gather ", i + 1, " of the step was unit ",
          name_at(0, i), " on rank 0, and ", name_at(rank, i), " on rank ", rank,
          "; ranks that do not reach each other's memory use the same units in the same order");
    }
  }
  return OkStatus();
}

StatusOr<std::byte*> UnitShards::Finish(int u) {
  AIT_RETURN_IF_ERROR(Start(u));
  Unit& unit = unit_at(u);
  if (!unit.is_whole) {
    const Time begin = SystemClock().now();
    if (unit.job != nullptr) unit.job->Wait();
    const Status status = WaitAll(unit.works);
    counters_.exposed += SystemClock().now() - begin;
    unit.job.reset();
    unit.works.clear();
    if (!status.ok()) return Annotate(status, StrCat("gathering unit ", unit.name));
    unit.is_whole = true;
  }
  return unit.block.data();
}

void UnitShards::Store(int u) {
  for (const int b : unit_at(u).buckets) {
    const ShardedBucket& bucket = buckets_[static_cast<std::size_t>(b)].of;
    const Buffer own = shard(b);
    std::int64_t before = 0;
    for (int r = 0; r < communicator_->rank().value(); ++r)
      before += bucket.slice_counts[static_cast<std::size_t>(r)];
    if (own.count == 0) continue;
    std::memcpy(own.data, unit_at(u).block.data() + begin(b) + before * SizeOf(bucket.dtype),
                static_cast<std::size_t>(own.bytes().value()));
  }
}

void UnitShards::Drop(int u) {
  Unit& unit = unit_at(u);
  if (unit.job != nullptr) unit.job->Cancel();
  (void)WaitAll(unit.works);
  unit.job.reset();
  unit.works.clear();
  unit.is_whole = false;
  GiveBlock(std::move(unit.block));
  unit.block = HostBuffer();
}

GatherCounters UnitShards::TakeCounters() { return std::exchange(counters_, {}); }

}  // namespace ait::inline v0::internal
