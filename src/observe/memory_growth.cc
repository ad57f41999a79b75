// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/memory_growth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "ait/base/status.h"
#include "observe/growth_series_internal.h"
#include "observe/memory_text_internal.h"

namespace ait::inline v0 {
namespace {

using internal::BytesText;
using internal::GrowthSeries;

constexpr std::size_t kMostLabels = 256;  // series that are kept; the first ones seen

std::string PaceText(const GrowingMemory& growing) {
  return StrCat(BytesText(growing.bytes_per_step), " a step since step ", growing.since_step, ", ",
                BytesText(growing.so_far), " so far");
}

}  // namespace

std::string MemoryGrowthReport::Describe() const {
  if (!found()) return "";
  std::string text;
  if (live) {
    text = StrCat("live bytes grow by ", PaceText(*live));
  } else if (resident) {
    text = StrCat("resident memory grows by ", PaceText(*resident),
                  live_is_known
                      ? ", while live bytes do not: allocators hold it, fragmented or cached, or "
                        "something that nobody counts takes it"
                      : "; live bytes are not known, which would tell a leak from what allocators "
                        "hold");
  }
  int told = 0;
  for (const GrowingMemory& label : labels) {
    if (told++ == 3) break;
    if (!text.empty()) text += "; ";
    text += StrCat("label '", label.what, "' grows by ", PaceText(label));
  }
  if (live && labels.empty()) text += "; no label grows with it";
  return text;
}

std::optional<std::int64_t> MemoryGrowthReport::StepsUntil(Bytes room) const {
  double pace = 0;
  for (const auto& growing : {live, resident}) {
    if (growing) pace = std::max(pace, growing->bytes_per_step);
  }
  for (const GrowingMemory& label : labels) pace = std::max(pace, label.bytes_per_step);
  if (pace <= 0) return std::nullopt;
  const double steps = static_cast<double>(std::max<std::int64_t>(room.value(), 0)) / pace;
  constexpr double kMost = 1e15;
  return static_cast<std::int64_t>(std::min(std::floor(steps), kMost));
}

class MemoryGrowth::Impl {
 public:
  explicit Impl(const MemoryGrowthOptions& options)
      : warm_up_(options.warm_up_steps),
        limits_{.window = static_cast<std::size_t>(std::clamp(options.window, 16, 256)),
                .least_slope = static_cast<double>(options.least_per_step.value()),
                .least_rise = static_cast<double>(options.least_in_window.value())} {}

  void Add(const GrowthSample& sample) {
    if (sample.step <= last_step_) return;
    last_step_ = sample.step;
    if (first_step_ < 0) first_step_ = sample.step;
    if (sample.step < first_step_ + warm_up_) return;
    AddTo(resident_, sample.step, sample.resident);
    AddTo(live_, sample.step, sample.live);
    live_is_known_ = sample.live.has_value();
  }

  void AddHolders(std::int64_t step, const std::vector<MemoryHolder>& holders) {
    if (step <= last_labels_) return;
    last_labels_ = step;
    if (first_step_ < 0) first_step_ = step;
    if (step < first_step_ + warm_up_) return;
    for (const MemoryHolder& holder : holders) {
      if (labels_.size() >= kMostLabels && !labels_.contains(holder.label)) continue;
      AddTo(labels_[holder.label], step, Bytes(holder.bytes));
    }
    for (auto& [label, series] : labels_) {
      if (series.last_step() != step) AddTo(series, step, Bytes(0));
    }
  }

  MemoryGrowthReport Find() const {
    MemoryGrowthReport report{.live_is_known = live_is_known_};
    report.live = FindIn(live_, "live bytes");
    report.resident = FindIn(resident_, "resident memory");
    for (const auto& [label, series] : labels_) {
      if (auto growing = FindIn(series, label)) report.labels.push_back(*std::move(growing));
    }
    std::ranges::stable_sort(report.labels, std::ranges::greater{}, &GrowingMemory::bytes_per_step);
    return report;
  }

 private:
  void AddTo(GrowthSeries& series, std::int64_t step, const std::optional<Bytes>& value) {
    if (value) series.Add({step, static_cast<double>(value->value())}, limits_.window);
  }

  std::optional<GrowingMemory> FindIn(const GrowthSeries& series, const std::string& what) const {
    const auto fit = series.Find(limits_);
    if (!fit) return std::nullopt;
    const auto steps = static_cast<double>(series.last_step() - fit->since_step);
    return GrowingMemory{.what = what,
                         .bytes_per_step = fit->slope,
                         .since_step = fit->since_step,
                         .so_far = Bytes(std::llround(fit->slope * steps))};
  }

  const std::int64_t warm_up_;
  const internal::GrowthLimits limits_;
  std::int64_t first_step_ = -1;
  std::int64_t last_step_ = std::numeric_limits<std::int64_t>::min();
  GrowthSeries resident_;
  GrowthSeries live_;
  bool live_is_known_ = false;
  std::int64_t last_labels_ = std::numeric_limits<std::int64_t>::min();
  std::map<std::string, GrowthSeries> labels_;
};

MemoryGrowth::MemoryGrowth(const MemoryGrowthOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
MemoryGrowth::MemoryGrowth(MemoryGrowth&&) noexcept = default;
MemoryGrowth& MemoryGrowth::operator=(MemoryGrowth&&) noexcept = default;
MemoryGrowth::~MemoryGrowth() = default;

void MemoryGrowth::Add(const GrowthSample& sample) { impl_->Add(sample); }
void MemoryGrowth::AddHolders(std::int64_t step, const std::vector<MemoryHolder>& holders) {
  impl_->AddHolders(step, holders);
}
MemoryGrowthReport MemoryGrowth::Find() const { return impl_->Find(); }

}  // namespace ait::inline v0
