// SPDX-License-Identifier: Apache-2.0
// The counts of a layout, without libtorch: the `ait` program has this file too.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <vector>

#include "ait/parallel/memory_setup.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kLeastElements8bit = 4096;  // as ait/optim/state_format.h has it
constexpr std::int64_t kArrayAlignment = 16;       // of Adafactor's arrays

// Adafactor keeps a mean of each row and of each column of the last two dimensions, else all.
std::int64_t FactorsOf(const ParameterInfo& info) {
  const std::int64_t count = info.count();
  if (info.sizes.size() < 2 || count == 0) return RoundUp(count, kArrayAlignment);
  return RoundUp(count / info.sizes.back(), kArrayAlignment) +
         RoundUp(count / info.sizes[info.sizes.size() - 2], kArrayAlignment);
}

// Bytes of an 8-bit moment of `count` elements of a parameter: codes and a scale for each block.
std::int64_t Bytes8bit(const ParameterInfo& info, std::int64_t count) {
  if (info.count() < kLeastElements8bit) return 4 * RoundUp(count, kArrayAlignment);
  return RoundUp(count, 64) + 4 * RoundUp((count + 63) / 64, kArrayAlignment);
}

// The most that one rank has of it.
std::int64_t Owned8bit(const FlatLayout& layout) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(layout.options().world_size.value()));
  for (const FlatGroup& group : layout.groups()) {
    for (const FlatSlot& slot : group.slots) {
      const FlatBucket& bucket = layout.buckets()[static_cast<std::size_t>(slot.bucket)];
      std::int64_t begin = bucket.begin;
      for (std::size_t r = 0; r < bytes.size(); ++r) {
        const ElementRange slice{begin, begin + bucket.slice_counts[r]};
        const std::int64_t count =
            Intersection({slot.offset, slot.offset + slot.count}, slice).size();
        begin = slice.end;
        if (count == 0) continue;
        bytes[r] += Bytes8bit(layout.parameters()[static_cast<std::size_t>(slot.parameter)], count);
      }
    }
  }
  return *std::ranges::max_element(bytes);
}

}  // namespace

ParameterCounts CountsOf(const FlatLayout& layout, int prefetch) {
  ParameterCounts counts;
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const ParameterInfo& info = layout.parameters()[i];
    if (info.tied_to >= 0) continue;
    if (info.role == ParameterInfo::Role::kFrozen) {
      counts.frozen += info.count();
      continue;
    }
    counts.elements += info.count();
    counts.factors += FactorsOf(info);
    if (info.count() < kLeastElements8bit) counts.small += info.count();
  }
  const auto ranks = static_cast<std::size_t>(layout.options().world_size.value());
  std::vector<std::int64_t> owned(ranks);
  std::vector<std::int64_t> owned_in_units(ranks);
  std::map<int, std::int64_t> units;
  std::array<std::int64_t, 2> ring = {};  // bucket b goes through buffer b mod 2
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const FlatBucket& bucket = layout.buckets()[b];
    counts.flat += bucket.count;
    ring[b % ring.size()] = std::max(ring[b % ring.size()], bucket.count);
    for (std::size_t r = 0; r < ranks; ++r) {
      owned[r] += bucket.slice_counts[r];
      if (bucket.unit >= 0) owned_in_units[r] += bucket.slice_counts[r];
    }
    (bucket.unit >= 0 ? units[bucket.unit] : counts.whole) += bucket.count;
  }
  counts.owned = *std::ranges::max_element(owned);
  counts.owned_in_units = *std::ranges::max_element(owned_in_units);
  counts.owned_8bit = Owned8bit(layout);
  counts.buckets = ring[0] + ring[1];
  std::vector<std::int64_t> sizes;
  for (const auto& [unit, size] : units) sizes.push_back(size);
  std::ranges::sort(sizes, std::greater<>());
  for (std::size_t i = 0; i < sizes.size() && i <= static_cast<std::size_t>(prefetch); ++i) {
    counts.gathered += sizes[i];
  }
  counts.largest_unit = sizes.empty() ? 0 : sizes.front();
  return counts;
}

ElementBytes BytesOf(const Precision& precision) {
  ElementBytes bytes{.parameters = SizeOf(precision.parameters),
                     .gradients = SizeOf(precision.gradients),
                     .is_bf16 = precision.parameters == DType::kBFloat16};
  if (precision.parameters == DType::kFloat32) return bytes;
  constexpr std::array kMasters = {4, 2, 2, 0, 0};
  bytes.masters = kMasters[static_cast<std::size_t>(precision.masters)];
  return bytes;
}

MemoryParts PartsOf(const MemoryReport& report) {
  return {.parameters = report.measured.parameters,
          .gradients = report.measured.gradients,
          .masters = report.measured.masters,
          .states = report.measured.states,
          .buckets = report.peak_buckets,
          .gathered = report.peak_gathered};
}

}  // namespace ait::inline v0
