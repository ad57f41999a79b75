// SPDX-License-Identifier: Apache-2.0
#include "parallel/compression_packed_internal.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "ait/optim/parameter_groups.h"
#include "parallel/compression_kernels_internal.h"
#include "parallel/hash_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::string_view kResidual = "residual";
constexpr std::string_view kFactor = "factor";

std::size_t Index(std::int64_t i) { return static_cast<std::size_t>(i); }

std::span<float> Part(std::span<float> all, std::int64_t begin, std::int64_t count) {
  return all.subspan(Index(begin), Index(count));
}

void Copy(const float* from, float* to, std::int64_t count) {
  if (count > 0) std::memcpy(to, from, Index(count) * sizeof(float));
}

void ZeroGaps(std::span<float> packed, const std::vector<PackedSegment>& segments) {
  std::int64_t end = 0;
  for (const PackedSegment& segment : segments) {
    std::ranges::fill(Part(packed, end, segment.in_packed - end), 0.0f);
    end = segment.in_packed + segment.count;
  }
  std::ranges::fill(packed.subspan(Index(end)), 0.0f);
}

// "a, b and 3 more"
std::string NameList(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, names.size()); ++i) {
    text += StrCat(i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > 3) text += StrCat(" and ", names.size() - 3, " more");
  return text;
}

}  // namespace

std::string PackedCompression::Describe() const {
  std::string exact;
  for (const std::string& pattern : scope_.exact) exact += StrCat(" ", pattern);
  std::string text =
      StrCat(method_, " (", OptionsText(), ", exact:", exact.empty() ? " none" : exact, ", from ",
             scope_.min_elements, " elements), step ", step_);
  if (const std::uint64_t hash = SharedHash(); hash != 0) text += StrCat(", factors ", hash);
  std::int64_t compressed = 0;  // what a predicate selects shows here only
  for (const PackedBucket& bucket : buckets_) {
    for (const PackedSegment& segment : bucket.compressed) compressed += segment.count;
  }
  if (!buckets_.empty()) text += StrCat(", ", compressed, " elements in scope");
  return text;
}

bool PackedCompression::IsCompressed(const ParameterInfo& parameter) const {
  if (parameter.count() == 0 || parameter.count() < scope_.min_elements) return false;
  for (const std::string& pattern : scope_.exact) {
    if (MatchesPattern(pattern, parameter.name)) return false;
  }
  return !(scope_.is_exact && scope_.is_exact(parameter)) && Fits(parameter);
}

void PackedCompression::Divide(const FlatLayout& layout, const FlatBucket& planned,
                               PackedBucket& bucket) const {
  for (const int parameter : planned.parameters) {
    const FlatSlot& slot = *layout.slot(parameter);
    PackedSegment segment{
        .parameter = parameter, .in_bucket = slot.offset - planned.begin, .count = slot.count};
    if (IsCompressed(info(parameter))) {
      segment.in_packed = RoundUp(bucket.packed_count, alignment_);
      bucket.packed_count = segment.in_packed + segment.count;
      bucket.compressed.push_back(segment);
    } else if (segment.count > 0) {
      segment.in_packed = bucket.exact_count;
      bucket.exact_count += segment.count;
      bucket.exact.push_back(segment);
    }
  }
  bucket.packed_count = RoundUp(bucket.packed_count, alignment_);
  bucket.in_place = bucket.exact.empty() && FlatLayout::kAlignment % alignment_ == 0;
  if (!bucket.in_place) return;
  bucket.packed_count = planned.count;
  for (PackedSegment& segment : bucket.compressed) segment.in_packed = segment.in_bucket;
}

Status PackedCompression::Bind(const FlatLayout& layout, Rank rank, WorldSize size) {
  if (scope_.min_elements < 0) {
    return InvalidArgumentError("compression by ", method_, ": min_elements is ",
                                scope_.min_elements, "; give 0 or more");
  }
  AIT_RETURN_IF_ERROR(CheckOptions());
  for (const std::string& pattern : scope_.exact) {
    const bool is_used = std::ranges::any_of(layout.parameters(), [&](const ParameterInfo& p) {
      return MatchesPattern(pattern, p.name);
    });
    if (is_used) continue;
    return InvalidArgumentError("compression by ", method_, ": the pattern \"", pattern,
                                "\" of parameters that stay exact fits none of the ",
                                layout.parameters().size(), " of the model");
  }
  parameters_ = layout.parameters();
  rank_ = rank;
  size_ = size;
  step_ = 0;
  buckets_.clear();
  std::int64_t packed = 0;
  std::int64_t exact = 0;
  for (const FlatBucket& planned : layout.buckets()) {
    PackedBucket& bucket = buckets_.emplace_back();
    const bool is_fp32 = layout.groups()[Index(planned.group)].dtype == DType::kFloat32;
    if (!is_fp32 || size.value() == 1) continue;
    Divide(layout, planned, bucket);
    if (!bucket.in_place) packed = std::max(packed, bucket.packed_count);
    exact = std::max(exact, bucket.exact_count);
    if (!has_feedback()) continue;
    bucket.residual.assign(Index(bucket.packed_count), 0.0f);
    bucket.next_residual.assign(Index(bucket.packed_count), 0.0f);
  }
  packed_.assign(Index(packed), 0.0f);
  exact_.assign(Index(exact), 0.0f);
  return BindMethod();
}

Status PackedCompression::ReduceExactly(PackedBucket& bucket, const Buffer& values, Wire& wire) {
  if (bucket.has_residual) {
    float* const in_bucket = static_cast<float*>(values.data);
    for (const PackedSegment& segment : bucket.compressed) {
      compression::AddTo({in_bucket + segment.in_bucket, Index(segment.count)},
                         Part(bucket.residual, segment.in_packed, segment.count));
    }
  }
  std::ranges::fill(bucket.next_residual, 0.0f);
  bucket.reduced = true;
  return wire.AllReduceSum(values).Wait();
}

Status PackedCompression::Reduce(const GradientBucket& given, Communicator& communicator,
                                 const OperationOptions& options, CompressionCounters& counters) {
  PackedBucket& bucket = buckets_[Index(given.index)];
  Wire wire(communicator, options, counters);
  if (bucket.compressed.empty() || IsExactNow(bucket)) {
    return ReduceExactly(bucket, given.values, wire);
  }
  float* const in_bucket = static_cast<float*>(given.values.data);
  Work exact;
  if (!bucket.exact.empty()) {
    for (const PackedSegment& segment : bucket.exact) {
      Copy(in_bucket + segment.in_bucket, exact_.data() + segment.in_packed, segment.count);
    }
    exact = wire.AllReduceSum({exact_.data(), bucket.exact_count, DType::kFloat32});
  }
  const std::span<float> values(bucket.in_place ? in_bucket : packed_.data(),
                                Index(bucket.packed_count));
  if (!bucket.in_place) {
    for (const PackedSegment& segment : bucket.compressed) {
      Copy(in_bucket + segment.in_bucket, values.data() + segment.in_packed, segment.count);
    }
    ZeroGaps(values, bucket.compressed);
  }
  if (bucket.has_residual) compression::AddTo(values, bucket.residual);
  counters.squares += compression::Squares(values);
  AIT_RETURN_IF_ERROR(Exchange(Index(given.index), values, bucket.next_residual, wire));
  if (has_feedback()) counters.error_squares += compression::Squares(bucket.next_residual);
  bucket.reduced = true;
  if (bucket.in_place) {
    ZeroGaps(values, bucket.compressed);  // a block that is not finite reaches into them
  } else {
    for (const PackedSegment& segment : bucket.compressed) {
      Copy(values.data() + segment.in_packed, in_bucket + segment.in_bucket, segment.count);
    }
  }
  AIT_RETURN_IF_ERROR(exact.Wait());
  for (const PackedSegment& segment : bucket.exact) {
    Copy(exact_.data() + segment.in_packed, in_bucket + segment.in_bucket, segment.count);
  }
  return OkStatus();
}

void PackedCompression::EndStep(StepEnd end) {
  if (end == StepEnd::kUpdated) ++step_;
  for (PackedBucket& bucket : buckets_) {
    if (!std::exchange(bucket.reduced, false) || end == StepEnd::kDiscarded) continue;
    std::swap(bucket.residual, bucket.next_residual);
    bucket.has_residual = has_feedback();
  }
  EndMethodStep(end);
}

CompressionState PackedCompression::Save() const {
  CompressionState state{
      .method = method_, .rank = rank_.value(), .world_size = size_.value(), .step = step_};
  for (const PackedBucket& bucket : buckets_) {
    if (!bucket.has_residual) continue;
    for (const PackedSegment& segment : bucket.compressed) {
      const float* const begin = bucket.residual.data() + segment.in_packed;
      state.entries.push_back({info(segment.parameter).name, std::string(kResidual),
                               std::vector<float>(begin, begin + segment.count)});
    }
  }
  SaveShared(state.entries);
  return state;
}

StatusOr<std::string> PackedCompression::Load(std::span<const CompressionState> states) {
  if (states.empty()) {
    return InvalidArgumentError("no state of a gradient compression was given");
  }
  for (const CompressionState& state : states) {
    if (state.method != method_) {
      return InvalidArgumentError("the state is of compression by \"", state.method,
                                  "\", the engine compresses by \"", method_,
                                  "\"; use that method, or go on without the state");
    }
    if (state.step != states[0].step || state.world_size != states[0].world_size) {
      return InvalidArgumentError("the states of ranks ", states[0].rank, " and ", state.rank,
                                  " are not of one step of one run: step ", states[0].step, " of ",
                                  states[0].world_size, " ranks and step ", state.step, " of ",
                                  state.world_size);
    }
  }
  step_ = states[0].step;
  std::string lost = FoldResiduals(states);
  std::vector<std::string> refused;
  for (const CompressionEntry& entry : states[0].entries) {
    if (entry.kind == kFactor && !LoadShared(entry)) refused.push_back(entry.parameter);
  }
  if (!refused.empty()) {
    lost += StrCat(lost.empty() ? "" : "; ", "factors begin anew for ", NameList(refused),
                   ": saved with another rank or shape");
  }
  return lost;
}

// Returns what was lost, as text.
std::string PackedCompression::FoldResiduals(std::span<const CompressionState> states) {
  const int old_size = states[0].world_size;
  std::map<std::string_view, std::vector<const CompressionEntry*>> found;
  std::vector<std::string> missing;
  for (int old_rank = rank_.value(); old_rank < old_size; old_rank += size_.value()) {
    const auto state =
        std::ranges::find_if(states, [&](const auto& given) { return given.rank == old_rank; });
    if (state == states.end()) {
      missing.push_back(StrCat(old_rank));
      continue;
    }
    for (const CompressionEntry& entry : state->entries) {
      if (entry.kind == kResidual) found[entry.parameter].push_back(&entry);
    }
  }
  if (!missing.empty()) found.clear();
  std::vector<std::string> other_shape;
  for (PackedBucket& bucket : buckets_) {
    std::ranges::fill(bucket.residual, 0.0f);
    bucket.has_residual = false;
    bucket.reduced = false;
    if (!has_feedback()) continue;
    for (const PackedSegment& segment : bucket.compressed) {
      const auto entries = found.find(info(segment.parameter).name);
      if (entries == found.end()) continue;
      const bool fits = std::ranges::all_of(entries->second, [&](const CompressionEntry* entry) {
        return entry->values.size() == Index(segment.count);
      });
      if (!fits) other_shape.emplace_back(entries->first);
      for (const CompressionEntry* entry : entries->second) {
        if (!fits) break;
        compression::AddTo(Part(bucket.residual, segment.in_packed, segment.count), entry->values);
        bucket.has_residual = true;
      }
      found.erase(entries);
    }
  }
  std::string lost;
  const auto add = [&](const std::string& text) { lost += StrCat(lost.empty() ? "" : "; ", text); };
  if (!missing.empty()) {
    add(StrCat("the residuals of rank ", rank_, " of ", size_, " begin at zero: they are those of ",
               missing.size() == 1 ? "rank " : "ranks ", NameList(missing), " of ", old_size,
               ", which were not given"));
  }
  if (!other_shape.empty()) {
    add(StrCat("residuals of another size begin at zero: ", NameList(other_shape)));
  }
  std::vector<std::string> unknown;
  unknown.reserve(found.size());
  for (const auto& [name, entries] : found) unknown.emplace_back(name);
  if (!unknown.empty()) {
    add(StrCat("residuals are dropped of parameters that are not compressed here: ",
               NameList(unknown)));
  }
  return lost;
}

}  // namespace ait::inline v0::internal
