// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "parallel/hash_internal.h"

namespace ait::inline v0 {
namespace {

std::string Join(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", numbers[i]);
  }
  return text + "]";
}

bool SameKind(const ParameterInfo& a, const ParameterInfo& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes &&
         a.strides == b.strides && a.role == b.role && a.unit == b.unit;
}

// Adds the bytes that a parameter takes, if it has all the padding that there can be. False if that
// does not fit.
bool AddBytes(const ParameterInfo& info, WorldSize world_size, std::int64_t& total) {
  std::int64_t bytes = SizeOf(info.dtype);
  for (const std::int64_t size : info.sizes) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return false;
  }
  const std::int64_t padding = (256 + FlatLayout::kAlignment * 2 * world_size.value()) * 8;
  return !__builtin_add_overflow(bytes, padding, &bytes) &&
         !__builtin_add_overflow(total, bytes, &total);
}

Status Check(const std::vector<ParameterInfo>& parameters, const FlatLayoutOptions& options) {
  if (options.world_size.value() < 1) {
    return InvalidArgumentError("world size ", options.world_size, " is not positive");
  }
  if (options.first_bucket.value() < 1 || options.bucket_cap.value() < 1) {
    return InvalidArgumentError("bucket sizes must be at least 1 byte, but first_bucket is ",
                                options.first_bucket, " and bucket_cap is ", options.bucket_cap);
  }
  std::int64_t total = 0;
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters[i];
    if (info.name.empty()) return InvalidArgumentError("parameter ", i, " has no name");
    if (const auto [other, is_new] = seen.emplace(info.name, i); !is_new) {
      return InvalidArgumentError("parameters ", other->second, " and ", i, " have the same name ",
                                  info.name, "; names must be unique");
    }
    if (std::ranges::any_of(info.sizes, [](std::int64_t size) { return size < 0; })) {
      return InvalidArgumentError("parameter ", info.name,
                                  " has a negative size: ", Join(info.sizes));
    }
    if (!AddBytes(info, options.world_size, total)) {
      return InvalidArgumentError("parameter ", info.name, " of sizes ", Join(info.sizes),
                                  " takes the model over 2^63 bytes");
    }
    if (info.tied_to < 0) continue;
    const auto owner = static_cast<std::size_t>(info.tied_to);
    if (owner >= i || parameters[owner].tied_to >= 0) {
      return InvalidArgumentError("parameter ", info.name, " is tied to parameter ", owner,
                                  ", which is not an earlier owner of memory");
    }
    if (!SameKind(info, parameters[owner])) {
      return InvalidArgumentError("parameter ", info.name, " (", Describe(info), ") is tied to ",
                                  parameters[owner].name, " (", Describe(parameters[owner]),
                                  "), but they are not alike; tied parameters must be");
    }
  }
  return OkStatus();
}

// Cuts a bucket between its parameters so that the load of the ranks, over all buckets so far, stays
// level: rank r takes parameters until it has its part of all elements.
std::vector<std::int64_t> WholeSlices(const FlatGroup& group, const FlatBucket& bucket,
                                      std::vector<std::int64_t>& loads) {
  const std::size_t ranks = loads.size();
  std::int64_t total = bucket.count;
  for (const std::int64_t load : loads) total += load;
  std::vector<std::int64_t> counts(ranks, 0);
  std::vector<std::int64_t> starts;  // of the parameters, then the end of the bucket
  for (const FlatSlot& slot : group.slots) {
    if (slot.offset >= bucket.begin && slot.offset < bucket.begin + bucket.count && slot.count > 0)
      starts.push_back(slot.offset);
  }
  starts.push_back(bucket.begin + bucket.count);
  if (starts.size() > 1) starts.front() = bucket.begin;
  const std::int64_t share =
      (total + static_cast<std::int64_t>(ranks) - 1) / static_cast<std::int64_t>(ranks);
  std::size_t rank = 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const std::int64_t size = starts[i + 1] - starts[i];
    // On to the next rank where more than half of the parameter would be above this one's part.
    while (rank + 1 < ranks && loads[rank] + size / 2 >= share) ++rank;
    counts[rank] += size;
    loads[rank] += size;
  }
  return counts;
}

std::string_view DeviceKind(std::string_view device) { return device.substr(0, device.find(':')); }

}  // namespace

ElementRange FlatBucket::slice(Rank rank) const {
  const auto r = static_cast<std::ptrdiff_t>(rank.value());
  const std::int64_t first = std::accumulate(slice_counts.begin(), slice_counts.begin() + r, begin);
  return {first, first + slice_counts[static_cast<std::size_t>(r)]};
}

std::int64_t ParameterInfo::count() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::string Describe(const ParameterInfo& info) {
  return StrCat(Name(info.dtype), " ", Join(info.sizes), " strides ", Join(info.strides), " on ",
                info.device, info.role == ParameterInfo::Role::kFrozen ? ", frozen" : "",
                info.tied_to >= 0 ? StrCat(", tied to parameter ", info.tied_to) : std::string());
}

StatusOr<FlatLayout> FlatLayout::Create(std::vector<ParameterInfo> parameters,
                                        const FlatLayoutOptions& options) {
  AIT_RETURN_IF_ERROR(Check(parameters, options));
  FlatLayout layout;
  layout.options_ = options;
  layout.parameters_ = std::move(parameters);
  layout.places_.assign(layout.parameters_.size(), {-1, -1});

  // While the layout grows, `open` is the bucket of each group that still takes parameters.
  std::vector<int> open;
  const std::int64_t unit = std::lcm(kAlignment * options.world_size.value(), std::int64_t{128});
  const auto close = [&](std::size_t group) {
    FlatBucket& bucket = layout.buckets_[static_cast<std::size_t>(open[group])];
    bucket.count = RoundUp(layout.groups_[group].count - bucket.begin, unit);
    layout.groups_[group].count = bucket.begin + bucket.count;
  };
  for (auto i = static_cast<int>(layout.parameters_.size()) - 1; i >= 0; --i) {
    const ParameterInfo& info = layout.parameters_[static_cast<std::size_t>(i)];
    if (info.role == ParameterInfo::Role::kFrozen || info.tied_to >= 0) continue;
    const auto found = std::ranges::find_if(layout.groups_, [&](const FlatGroup& group) {
      return group.dtype == info.dtype && group.device == info.device;
    });
    const auto g = static_cast<std::size_t>(found - layout.groups_.begin());
    const bool is_first = found == layout.groups_.end();
    if (is_first) {
      layout.groups_.push_back({.dtype = info.dtype, .device = info.device});
      open.push_back(-1);
    }
    FlatGroup& group = layout.groups_[g];
    const int element = SizeOf(info.dtype);
    const std::int64_t start = RoundUp(group.count, std::max(kAlignment, 128L / element));
    const std::int64_t count = info.count();
    bool needs_bucket = is_first;
    if (!is_first) {
      const FlatBucket& bucket = layout.buckets_[static_cast<std::size_t>(open[g])];
      const bool is_first_bucket = bucket.begin == 0;
      const Bytes cap = is_first_bucket ? options.first_bucket : options.bucket_cap;
      needs_bucket = bucket.unit != info.unit ||
                     (group.count > bucket.begin &&
                      (start + count - bucket.begin) * element > cap.value() && count > 0);
    }
    std::int64_t offset = start;
    if (needs_bucket) {
      if (!is_first) close(g);
      open[g] = static_cast<int>(layout.buckets_.size());
      offset = group.count;
      layout.buckets_.push_back({.group = static_cast<int>(g), .begin = offset, .unit = info.unit});
    }
    layout.buckets_[static_cast<std::size_t>(open[g])].parameters.push_back(i);
    layout.places_[static_cast<std::size_t>(i)] = {static_cast<int>(g),
                                                   static_cast<int>(group.slots.size())};
    group.slots.push_back({.parameter = i, .bucket = open[g], .offset = offset, .count = count});
    group.count = offset + count;
  }
  for (std::size_t g = 0; g < layout.groups_.size(); ++g) close(g);

  // A bucket is complete when backward has reached the earliest registered of its parameters.
  std::vector<int> order(layout.buckets_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater<>(), [&](int b) {
    return layout.buckets_[static_cast<std::size_t>(b)].parameters.back();
  });
  std::vector<FlatBucket> sorted;
  std::vector<int> position(order.size());
  for (const int b : order) {
    position[static_cast<std::size_t>(b)] = static_cast<int>(sorted.size());
    sorted.push_back(std::move(layout.buckets_[static_cast<std::size_t>(b)]));
  }
  layout.buckets_ = std::move(sorted);
  const auto ranks = static_cast<std::size_t>(options.world_size.value());
  std::vector<std::int64_t> loads(ranks, 0);
  for (FlatBucket& bucket : layout.buckets_) {
    const FlatGroup& group = layout.groups_[static_cast<std::size_t>(bucket.group)];
    bucket.slice_counts =
        options.slices == SliceRule::kEqual
            ? std::vector<std::int64_t>(ranks, bucket.count / options.world_size.value())
            : WholeSlices(group, bucket, loads);
  }
  internal::Hash64 hash;
  hash.Add(static_cast<std::uint64_t>(options.world_size.value()));
  for (FlatGroup& group : layout.groups_) {
    hash.Add(group.slots.size()).Add(static_cast<std::uint64_t>(group.count));
    for (FlatSlot& slot : group.slots) {
      slot.bucket = position[static_cast<std::size_t>(slot.bucket)];
      hash.Add(static_cast<std::uint64_t>(slot.parameter))
          .Add(static_cast<std::uint64_t>(slot.bucket));
      hash.Add(static_cast<std::uint64_t>(slot.offset)).Add(static_cast<std::uint64_t>(slot.count));
    }
  }
  for (const FlatBucket& bucket : layout.buckets_) {
    hash.Add(static_cast<std::uint64_t>(bucket.begin))
        .Add(static_cast<std::uint64_t>(bucket.count));
    hash.Add(static_cast<std::uint64_t>(bucket.unit));
    for (const std::int64_t count : bucket.slice_counts)
      hash.Add(static_cast<std::uint64_t>(count));
  }
  for (const ParameterInfo& info : layout.parameters_) {
    hash.Add(info.name).Add(Name(info.dtype)).Add(DeviceKind(info.device));
    hash.Add(static_cast<std::uint64_t>(info.role)).Add(static_cast<std::uint64_t>(info.tied_to));
    hash.Add(info.sizes.size());
    for (const std::int64_t size : info.sizes) hash.Add(static_cast<std::uint64_t>(size));
    for (const std::int64_t stride : info.strides) hash.Add(static_cast<std::uint64_t>(stride));
  }
  layout.hash_ = hash.value();
  return layout;
}

const FlatSlot* FlatLayout::slot(int parameter) const {
  const ParameterInfo& info = parameters_[static_cast<std::size_t>(parameter)];
  const auto owner = static_cast<std::size_t>(info.tied_to >= 0 ? info.tied_to : parameter);
  const auto [group, slot] = places_[owner];
  if (group < 0) return nullptr;
  return &groups_[static_cast<std::size_t>(group)].slots[static_cast<std::size_t>(slot)];
}

std::string FlatLayout::Describe() const {
  std::string text = StrCat(parameters_.size(), " parameters, ", groups_.size(), " flat buffers, ",
                            buckets_.size(), " buckets, world size ", options_.world_size, "\n");
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = buckets_[b];
    const FlatGroup& group = groups_[static_cast<std::size_t>(bucket.group)];
    text += StrCat("  bucket ", b, ": ", Name(group.dtype), " on ", group.device, ", elements ",
                   bucket.begin, " to ", bucket.begin + bucket.count, ", ",
                   bucket.parameters.size(), " parameters from ",
                   parameters_[static_cast<std::size_t>(bucket.parameters.front())].name, "\n");
  }
  return text;
}

}  // namespace ait::inline v0
