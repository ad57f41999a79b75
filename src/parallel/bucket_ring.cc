// SPDX-License-Identifier: Apache-2.0
#include "parallel/bucket_ring_internal.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ait/tensor/dtype.h"
#include "parallel/flat_tensor_internal.h"

namespace ait::inline v0::internal {

BucketRing::BucketRing(const FlatLayout& layout, std::vector<DType> dtypes, MemoryHandle memory,
                       std::function<StatusOr<bool>()> make_room)
    : layout_(&layout),
      dtypes_(std::move(dtypes)),
      memory_(std::move(memory)),
      make_room_(std::move(make_room)),
      place_(layout.buckets().size(), -1) {}

StatusOr<BucketRing> BucketRing::Create(const FlatLayout& layout, std::vector<DType> dtypes,
                                        MemoryHandle memory,
                                        std::function<StatusOr<bool>()> make_room) {
  BucketRing ring(layout, std::move(dtypes), std::move(memory), std::move(make_room));
  std::array<std::int64_t, kDepth> bytes{};
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const FlatBucket& bucket = layout.buckets()[b];
    const std::int64_t needed =
        bucket.count * SizeOf(ring.dtypes_[static_cast<std::size_t>(bucket.group)]);
    bytes[b % kDepth] = std::max(bytes[b % kDepth], needed);
  }
  for (const std::int64_t size : bytes) {
    if (size > 0) AIT_RETURN_IF_ERROR(ring.Grow(size));
  }
  return ring;
}

Status BucketRing::Grow(std::int64_t bytes) {
  Slot& slot = slots_.emplace_back();
  StatusOr<at::Tensor> memory = MakeFlat(bytes, DType::kUInt8, memory_, "buckets in flight");
  if (!memory.ok()) {
    slots_.pop_back();
    return memory.status();
  }
  slot.memory = *std::move(memory);
  for (const DType dtype : dtypes_) {
    const std::int64_t whole = bytes / SizeOf(dtype) * SizeOf(dtype);
    slot.of_group.push_back(slot.memory.narrow(0, 0, whole).view(ToTorch(dtype)));
  }
  return OkStatus();
}

// The place that suits bucket `b` best, or -1.
int BucketRing::Free(int b) const {
  const FlatBucket& bucket = layout_->buckets()[static_cast<std::size_t>(b)];
  const std::int64_t needed =
      bucket.count * SizeOf(dtypes_[static_cast<std::size_t>(bucket.group)]);
  const auto fits = [&](const Slot& slot) {
    return slot.bucket < 0 && slot.memory.numel() >= needed;
  };
  const std::size_t usual = static_cast<std::size_t>(b) % kDepth;
  if (usual < slots_.size() && fits(slots_[usual])) return static_cast<int>(usual);
  int best = -1;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (!fits(slots_[s])) continue;
    if (best < 0 ||
        slots_[s].memory.numel() < slots_[static_cast<std::size_t>(best)].memory.numel()) {
      best = static_cast<int>(s);
    }
  }
  return best;
}

Status BucketRing::Open(int b) {
  int place = Free(b);
  while (place < 0) {
    AIT_ASSIGN_OR_RETURN(const bool has_ended, make_room_());
    if (!has_ended) {
      const FlatBucket& bucket = layout_->buckets()[static_cast<std::size_t>(b)];
      AIT_RETURN_IF_ERROR(
          Grow(bucket.count * SizeOf(dtypes_[static_cast<std::size_t>(bucket.group)])));
    }
    place = Free(b);
  }
  slots_[static_cast<std::size_t>(place)].bucket = b;
  place_[static_cast<std::size_t>(b)] = place;
  return OkStatus();
}

void BucketRing::Close(int b) {
  int& place = place_[static_cast<std::size_t>(b)];
  if (place >= 0) slots_[static_cast<std::size_t>(place)].bucket = -1;
  place = -1;
}

const at::Tensor& BucketRing::tensor(int b) const {
  const auto group =
      static_cast<std::size_t>(layout_->buckets()[static_cast<std::size_t>(b)].group);
  return slots_[static_cast<std::size_t>(place(b))].of_group[group];
}

Buffer BucketRing::buffer(int b) const {
  const FlatBucket& bucket = layout_->buckets()[static_cast<std::size_t>(b)];
  return BufferOf(tensor(b), dtypes_[static_cast<std::size_t>(bucket.group)])
      .Slice(0, bucket.count);
}

std::int64_t BucketRing::bytes() const {
  std::int64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.memory.numel();
  return bytes;
}

}  // namespace ait::inline v0::internal
