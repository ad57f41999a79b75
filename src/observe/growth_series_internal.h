// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_GROWTH_SERIES_INTERNAL_H_
#define AIT_OBSERVE_GROWTH_SERIES_INTERNAL_H_

// One number over the steps of a run, and whether it grows.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ait::inline v0::internal {

struct GrowthPoint {
  std::int64_t step = 0;
  double value = 0;
};

struct GrowthFit {
  double slope = 0;  // a step
  std::int64_t since_step = 0;
};

struct GrowthLimits {
  std::size_t window = 64;
  double least_slope = 0;
  double least_rise = 0;  // over the window
};

/// The median of the slopes of all pairs. Needs two points, of rising steps.
double TheilSenSlope(std::span<const GrowthPoint> points);

/// The slope if `points` grow steadily, else nullopt.
std::optional<double> SteadySlope(std::span<const GrowthPoint> points, const GrowthLimits& limits);

class GrowthSeries {
 public:
  void Add(GrowthPoint point, std::size_t window);
  std::optional<GrowthFit> Find(const GrowthLimits& limits) const;

  std::int64_t last_step() const { return recent_.empty() ? -1 : recent_.back().step; }

 private:
  std::int64_t Since(double slope) const;

  std::vector<GrowthPoint> recent_;   // the last ones, at most `window`
  std::vector<GrowthPoint> history_;  // of the whole run, each `stride_`-th, at most `window`
  std::int64_t count_ = 0;
  std::int64_t stride_ = 1;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OBSERVE_GROWTH_SERIES_INTERNAL_H_
