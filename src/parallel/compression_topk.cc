// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "parallel/compression_kernels_internal.h"
#include "parallel/compression_packed_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// What travels: for each rank its indices into the packed elements, then their values.
class TopK final : public PackedCompression {
 public:
  explicit TopK(TopKCompressionOptions options)
      : PackedCompression("topk", std::move(options.scope), ErrorFeedback::kOn, 16),
        ratio_(options.ratio),
        warmup_steps_(options.warmup_steps) {}

 private:
  Status CheckOptions() const override {
    if (!(ratio_ > 0 && ratio_ <= 1)) {
      return InvalidArgumentError("compression by topk: a ratio of ", ratio_,
                                  " is not above 0 and at most 1");
    }
    if (warmup_steps_ < 0) {
      return InvalidArgumentError("compression by topk: warmup_steps is ", warmup_steps_,
                                  "; give 0 or more");
    }
    return OkStatus();
  }
  std::string OptionsText() const override {
    return StrCat("ratio ", ratio_, ", warm-up of ", warmup_steps_, " steps");
  }

  Status BindMethod() override {
    for (std::size_t b = 0; b < buckets().size(); ++b) {
      if (buckets()[b].packed_count <= std::numeric_limits<std::uint32_t>::max()) continue;
      return InvalidArgumentError("compression by topk: bucket ", b, " has ",
                                  buckets()[b].packed_count,
                                  " elements, more than an index of 32 bits can tell apart; keep "
                                  "its largest parameter exact");
    }
    return OkStatus();
  }

  double RatioNow() const {
    if (step() >= warmup_steps_) return ratio_;
    return std::pow(ratio_,
                    static_cast<double>(step() + 1) / static_cast<double>(warmup_steps_ + 1));
  }
  // The same number on all processors, whatever the last bits of a power are.
  static std::int64_t Chosen(std::int64_t count, double ratio) {
    const double chosen = std::ceil(ratio * static_cast<double>(count) * (1 - 1e-9));
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(chosen), 1, count);
  }
  std::int64_t ChosenNow(const PackedBucket& bucket) const {
    std::int64_t chosen = 0;
    for (const PackedSegment& segment : bucket.compressed) {
      chosen += Chosen(segment.count, RatioNow());
    }
    return chosen;
  }

  // An all-reduce sends 8 (N-1)/N bytes an element, we send 8 (N-1) a chosen one.
  bool IsExactNow(const PackedBucket& bucket) const override {
    std::int64_t elements = 0;
    for (const PackedSegment& segment : bucket.compressed) elements += segment.count;
    return ChosenNow(bucket) * size().value() >= elements;
  }

  Status Exchange(std::size_t b, std::span<float> values, std::span<float> error,
                  Wire& wire) override {
    const PackedBucket& bucket = buckets()[b];
    const auto chosen = static_cast<std::size_t>(ChosenNow(bucket));
    const auto ranks = static_cast<std::size_t>(wire.size().value());
    const auto own = static_cast<std::size_t>(wire.rank().value());
    indices_.clear();
    for (const PackedSegment& segment : bucket.compressed) {
      const auto begin = static_cast<std::size_t>(segment.in_packed);
      compression::SelectLargest(values.subspan(begin, static_cast<std::size_t>(segment.count)),
                                 Chosen(segment.count, RatioNow()),
                                 static_cast<std::uint32_t>(begin), scratch_, indices_);
    }
    all_indices_.resize(chosen * ranks);
    all_values_.resize(chosen * ranks);
    std::ranges::copy(indices_, all_indices_.begin() + static_cast<std::ptrdiff_t>(own * chosen));
    for (std::size_t i = 0; i < chosen; ++i) {
      all_values_[own * chosen + i] = values[indices_[i]];
    }
    const Work indices = wire.AllGatherInPlace(
        {all_indices_.data(), static_cast<std::int64_t>(4 * all_indices_.size()), DType::kUInt8});
    const Work amounts = wire.AllGatherInPlace(View(all_values_));
    std::ranges::copy(values, error.begin());
    for (const std::uint32_t index : indices_) error[index] = 0;
    std::ranges::fill(values, 0.0f);
    AIT_RETURN_IF_ERROR(indices.Wait());
    AIT_RETURN_IF_ERROR(amounts.Wait());
    for (std::size_t i = 0; i < all_indices_.size(); ++i) {  // in rank order
      if (all_indices_[i] >= values.size()) {
        return InternalError("compression by topk: rank ", i / chosen, " sent the index ",
                             all_indices_[i], " of a bucket of ", values.size(), " elements");
      }
      values[all_indices_[i]] += all_values_[i];
    }
    return OkStatus();
  }

  double ratio_;
  std::int64_t warmup_steps_;
  compression::SelectScratch scratch_;
  std::vector<std::uint32_t> indices_, all_indices_;
  std::vector<float> all_values_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<GradientCompression> TopKCompression(TopKCompressionOptions options) {
  return std::make_shared<internal::TopK>(std::move(options));
}

}  // namespace ait::inline v0
