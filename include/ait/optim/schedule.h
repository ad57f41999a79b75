// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_SCHEDULE_H_
#define AIT_OPTIM_SCHEDULE_H_

// Learning rate schedules: functions from a step to a factor of the learning rate, without state.
//
// Steps count from 0; a step that is skipped, because a gradient was not finite, is not counted.
// During warm-up, at steps s < w, every schedule that has one gives (s + 1) / w: the first step
// already moves and step w − 1 has the full rate. After it, with n = s − w, u = n / (total − w),
// held at 1 from step `total` on, and final factor f:
//
//   constant: 1        linear: 1 + (f − 1) u        cosine: f + (1 − f) (1 + cos π u) / 2
//   polynomial: f + (1 − f) (1 − u)^power           exponential: decay^n
//   step: decay^⌊n / every⌋                         multi-step: decay^(milestones ≤ s)
//
// (the cosine without restarts is that of Loshchilov and Hutter, arXiv:1608.03983). Groups keep the
// ratios of their rates. A user's own function serves as well as these, and schedules combine: in
// sequence, or as a product.
//
//   ait::Schedule schedule = ait::CosineSchedule{.warmup_steps = 100, .total_steps = 2000};
//   ait::Schedule own = [](std::int64_t step) { return 1.0 / std::sqrt(step + 1.0); };
//   ait::Schedule both = ait::SequentialSchedule{.schedules = {schedule, own}, .milestones = {500}};
//
// What follows a metric instead of the step is ait/optim/plateau.h.

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

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

struct PolynomialSchedule {
  std::int64_t warmup_steps = 0;  // ≥ 0
  std::int64_t total_steps = 0;   // > warmup_steps; warm-up included
  double power = 1;               // > 0
  double final_factor = 0;        // ≥ 0

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

struct ExponentialSchedule {
  std::int64_t warmup_steps = 0;  // ≥ 0
  double decay = 1;               // of each step; > 0

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

struct StepSchedule {
  std::int64_t warmup_steps = 0;  // ≥ 0
  std::int64_t every = 0;         // steps between two decays; ≥ 1
  double decay = 0.1;             // > 0

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

struct MultiStepSchedule {
  std::int64_t warmup_steps = 0;         // ≥ 0
  std::vector<std::int64_t> milestones;  // steps that decay, warm-up included; ascending, ≥ 0
  double decay = 0.1;                    // > 0

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

/// How a factor goes from one value to another, with u from 0 to 1.
enum class DecayShape : std::uint8_t {
  kLinear,       // 1 − u
  kCosine,       // (1 + cos π u) / 2
  kOneMinusRoot  // 1 − √u (Hägele et al., arXiv:2405.18392)
};

/// Warm-up, a stable rate, and a decay to the final factor at the end (Hu et al.,
/// arXiv:2404.06395): where the decay begins can be chosen late.
struct WarmupStableDecaySchedule {
  std::int64_t warmup_steps = 0;  // ≥ 0
  std::int64_t total_steps = 0;   // all three together
  std::int64_t decay_steps = 0;   // the last of them; ≥ 1, at most total_steps − warmup_steps
  double final_factor = 0;        // ≥ 0
  DecayShape shape = DecayShape::kLinear;

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

enum class OneCyclePhases : std::uint8_t {
  kTwo,   // up, then down to the least
  kThree  // up, down in the mirror image, then to the least
};

/// The one-cycle policy (Smith and Topin, arXiv:1708.07120) as torch's OneCycleLR has it, for the
/// rate alone: momentum is not moved. The optimizer's learning rate is the largest; the first step
/// has 1 / `initial_divisor` of it, the last step 1 / (`initial_divisor` · `final_divisor`).
struct OneCycleSchedule {
  std::int64_t total_steps = 0;  // ≥ 2
  double rise = 0.3;             // part of the steps that go up; 0 to 1, with three phases to 0.5
  double initial_divisor = 25;   // ≥ 1
  double final_divisor = 1e4;    // ≥ 1
  DecayShape shape = DecayShape::kCosine;  // or kLinear
  OneCyclePhases phases = OneCyclePhases::kTwo;

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

/// The product of all.
struct ChainedSchedule {
  std::vector<Schedule> schedules;  // at least one

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

/// One after the other: schedule i + 1 takes over at step milestones[i], which is its step 0.
struct SequentialSchedule {
  std::vector<Schedule> schedules;
  std::vector<std::int64_t> milestones;  // one fewer than schedules; ascending, ≥ 1

  double operator()(std::int64_t step) const;
  Status Validate() const;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_SCHEDULE_H_
