// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "observe/growth_series_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kFewest = 16;   // points that say anything
constexpr double kRisingPairs = 0.6;  // rising pairs less falling ones; 0.09 is one sigma of noise
constexpr double kNoiseFactor = 3;    // rise over the window, in typical distances from the line
// Rises from quarter to quarter of the window, as parts of their mean. The last one tells growth from
// what levels off.
constexpr double kLeastRise = 0.35;
constexpr double kLeastLastRise = 0.7;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double Distance(const GrowthPoint& a, const GrowthPoint& b) {
  return static_cast<double>(b.step - a.step);
}

/// Distances of the points from the line with this slope through their middle.
struct Residuals {
  double offset = 0;   // value of the line at step 0
  double typical = 0;  // median of the absolute distances
};

Residuals ResidualsOf(std::span<const GrowthPoint> points, double slope) {
  std::vector<double> offsets;
  offsets.reserve(points.size());
  for (const GrowthPoint& point : points)
    offsets.push_back(point.value - slope * static_cast<double>(point.step));
  Residuals residuals{.offset = Median(offsets)};
  for (double& offset : offsets) offset = std::abs(offset - residuals.offset);
  residuals.typical = Median(std::move(offsets));
  return residuals;
}

bool MostPairsRise(std::span<const GrowthPoint> points) {
  std::int64_t balance = 0;
  std::int64_t pairs = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j, ++pairs)
      balance += (points[j].value > points[i].value) - (points[j].value < points[i].value);
  }
  return static_cast<double>(balance) >= kRisingPairs * static_cast<double>(pairs);
}

bool EveryQuarterRises(std::span<const GrowthPoint> points) {
  std::vector<double> medians;
  for (std::size_t quarter = 0; quarter < 4; ++quarter) {
    std::vector<double> values;
    for (std::size_t i = points.size() * quarter / 4; i < points.size() * (quarter + 1) / 4; ++i)
      values.push_back(points[i].value);
    medians.push_back(Median(std::move(values)));
  }
  const double mean = (medians[3] - medians[0]) / 3;
  return mean > 0 && medians[1] - medians[0] >= kLeastRise * mean &&
         medians[2] - medians[1] >= kLeastRise * mean &&
         medians[3] - medians[2] >= kLeastLastRise * mean;
}

}  // namespace

double TheilSenSlope(std::span<const GrowthPoint> points) {
  std::vector<double> slopes;
  slopes.reserve(points.size() * (points.size() - 1) / 2);
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j)
      slopes.push_back((points[j].value - points[i].value) / Distance(points[i], points[j]));
  }
  return Median(std::move(slopes));
}

std::optional<double> SteadySlope(std::span<const GrowthPoint> points, const GrowthLimits& limits) {
  if (points.size() < kFewest) return std::nullopt;
  // The cheap tests first: most series do not grow.
  if (!EveryQuarterRises(points) || !MostPairsRise(points)) return std::nullopt;
  const double slope = TheilSenSlope(points);
  const double rise = slope * Distance(points.front(), points.back());
  if (slope < limits.least_slope || rise < limits.least_rise) return std::nullopt;
  if (rise < kNoiseFactor * ResidualsOf(points, slope).typical) return std::nullopt;
  return slope;
}

void GrowthSeries::Add(GrowthPoint point, std::size_t window) {
  if (recent_.size() == window) recent_.erase(recent_.begin());
  recent_.push_back(point);
  if (count_++ % stride_ != 0) return;
  history_.push_back(point);
  if (history_.size() < window) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < history_.size(); i += 2) history_[kept++] = history_[i];
  history_.resize(kept);
  stride_ *= 2;
}

std::optional<GrowthFit> GrowthSeries::Find(const GrowthLimits& limits) const {
  // A window that is not full would call the first steps of a run growth.
  std::optional<double> slope;
  if (recent_.size() >= std::min(limits.window, 2 * kFewest)) slope = SteadySlope(recent_, limits);
  if (!slope && stride_ > 1) slope = SteadySlope(history_, limits);
  if (!slope) return std::nullopt;
  return GrowthFit{.slope = *slope, .since_step = Since(*slope)};
}

std::int64_t GrowthSeries::Since(double slope) const {
  std::vector<GrowthPoint> points;
  for (const GrowthPoint& point : history_) {
    if (point.step < recent_.front().step) points.push_back(point);
  }
  points.insert(points.end(), recent_.begin(), recent_.end());
  // Back from the end, as long as the points lie on the line of the later half.
  const auto later = std::span(points).last((recent_.size() + 1) / 2);
  const Residuals line = ResidualsOf(later, slope);
  const double tolerance = std::max(4 * line.typical, 2 * slope);
  std::int64_t since = points.back().step;
  int misses = 0;
  for (auto point = points.rbegin(); point != points.rend() && misses < 3; ++point) {
    const double value = line.offset + slope * static_cast<double>(point->step);
    if (std::abs(point->value - value) <= tolerance) {
      since = point->step;
      misses = 0;
    } else {
      ++misses;
    }
  }
  return since;
}

}  // namespace ait::inline v0::internal
