// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_SCHEDULE_H_
#define AIT_OPTIM_SCHEDULE_H_

// Learning rate schedules: functions from a step to a factor of the learning rate, without state.
//
// Steps count from 0. During warm-up, at steps s < w, every schedule gives (s + 1) / w: the first
// step already moves and step w − 1 has the full rate. After it, with u = (s − w) / (total − w),
// held at 1 from step `total` on, and final factor f:
//
//   constant: 1        linear: 1 + (f − 1) u        cosine: f + (1 − f) (1 + cos π u) / 2
//
// (the cosine without restarts is that of Loshchilov and Hutter, arXiv:1608.03983). Groups keep the
// ratios of their rates. A user's own function serves as well as these:
//
//   ait::Schedule schedule = ait::CosineSchedule{.warmup_steps = 100, .total_steps = 2000};
//   ait::Schedule own = [](std::int64_t step) { return 1.0 / std::sqrt(step + 1.0); };

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>

#include "ait/base/status.h"

namespace ait::inline v0 {

struct ConstantSchedule {
  std::int64_t warmup_steps = 0;  // ≥ 0

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

struct LinearSchedule {
  std::int64_t warmup_steps = 0;  // ≥ 0
  std::int64_t total_steps = 0;   // > warmup_steps; warm-up included
  double final_factor = 0;        // ≥ 0

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

struct CosineSchedule {
  std::int64_t warmup_steps = 0;  // ≥ 0
  std::int64_t total_steps = 0;   // > warmup_steps; warm-up included
  double final_factor = 0;        // ≥ 0

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

/// Any of the above, or any function of the step; by default the constant 1. A value.
class Schedule {
 public:
  Schedule() : Schedule(ConstantSchedule{}) {}

  template <typename F>
    requires(!std::same_as<F, Schedule> && std::is_invocable_r_v<double, const F&, std::int64_t>)
  Schedule(
      F factor) {  // NOLINT(google-explicit-constructor): a schedule is written where one is wanted
    if constexpr (requires { Status(factor.Validate()); }) status_ = factor.Validate();
    factor_ = std::move(factor);
  }

  /// The factor of the learning rate in a step ≥ 0.
  double FactorAt(std::int64_t step) const { return factor_(step); }
  /// **Errors.** InvalidArgument that names the option and its value.
  const Status& Validate() const { return status_; }

 private:
  std::function<double(std::int64_t)> factor_;
  Status status_;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_SCHEDULE_H_
