// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <optional>
#include <string_view>

namespace ait::inline v0 {
namespace {

std::optional<double> WarmupFactor(std::int64_t warmup_steps, std::int64_t step) {
  if (step >= warmup_steps) return std::nullopt;
  return static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
}

// Part of the way from the end of warm-up to the last step, at most 1.
double Progress(std::int64_t warmup_steps, std::int64_t total_steps, std::int64_t step) {
  return std::min(1.0, static_cast<double>(step - warmup_steps) /
                           static_cast<double>(total_steps - warmup_steps));
}

Status CheckWarmup(std::string_view schedule, std::int64_t warmup_steps) {
  if (warmup_steps >= 0) return OkStatus();
  return InvalidArgumentError(schedule, " schedule: warmup_steps is ", warmup_steps,
                              "; it must not be negative");
}

Status CheckDecay(std::string_view schedule, std::int64_t warmup_steps, std::int64_t total_steps,
                  double final_factor) {
  AIT_RETURN_IF_ERROR(CheckWarmup(schedule, warmup_steps));
  if (total_steps <= warmup_steps) {
    return InvalidArgumentError(schedule, " schedule: total_steps is ", total_steps,
                                "; it must be above warmup_steps, ", warmup_steps);
  }
  if (!std::isfinite(final_factor) || final_factor < 0) {
    return InvalidArgumentError(schedule, " schedule: final_factor is ", final_factor,
                                "; it must be finite and not negative");
  }
  return OkStatus();
}

Status CheckFactor(std::string_view schedule, std::string_view option, double value) {
  if (std::isfinite(value) && value > 0) return OkStatus();
  return InvalidArgumentError(schedule, " schedule: ", option, " is ", value,
                              "; it must be finite and above 0");
}

Status CheckAscending(std::string_view schedule, const std::vector<std::int64_t>& milestones,
                      std::int64_t least) {
  for (const std::int64_t milestone : milestones) {
    if (milestone < least) {
      return InvalidArgumentError(schedule, " schedule: milestone ", milestone,
                                  " must be at least ", least, " and above the one before it");
    }
    least = milestone + 1;
  }
  return OkStatus();
}

double Power(double decay, std::int64_t n) { return std::pow(decay, static_cast<double>(n)); }

// From 1 to 0 as u goes from 0 to 1.
double Fall(DecayShape shape, double u) {
  switch (shape) {
    case DecayShape::kCosine:
      return (1 + std::cos(std::numbers::pi * u)) / 2;
    case DecayShape::kOneMinusRoot:
      return 1 - std::sqrt(u);
    case DecayShape::kLinear:
      break;
  }
  return 1 - u;
}

}  // namespace

double ConstantSchedule::operator()(std::int64_t step) const {
  return WarmupFactor(warmup_steps, step).value_or(1.0);
}

Status ConstantSchedule::Validate() const { return CheckWarmup("constant", warmup_steps); }

double LinearSchedule::operator()(std::int64_t step) const {
  if (const auto factor = WarmupFactor(warmup_steps, step)) return *factor;
  return 1 + (final_factor - 1) * Progress(warmup_steps, total_steps, step);
}

Status LinearSchedule::Validate() const {
  return CheckDecay("linear", warmup_steps, total_steps, final_factor);
}

double CosineSchedule::operator()(std::int64_t step) const {
  if (const auto factor = WarmupFactor(warmup_steps, step)) return *factor;
  const double angle = std::numbers::pi * Progress(warmup_steps, total_steps, step);
  return final_factor + (1 - final_factor) * (1 + std::cos(angle)) / 2;
}

Status CosineSchedule::Validate() const {
  return CheckDecay("cosine", warmup_steps, total_steps, final_factor);
}

double PolynomialSchedule::operator()(std::int64_t step) const {
  if (const auto factor = WarmupFactor(warmup_steps, step)) return *factor;
  const double left = 1 - Progress(warmup_steps, total_steps, step);
  return final_factor + (1 - final_factor) * std::pow(left, power);
}

Status PolynomialSchedule::Validate() const {
  AIT_RETURN_IF_ERROR(CheckDecay("polynomial", warmup_steps, total_steps, final_factor));
  return CheckFactor("polynomial", "power", power);
}

double ExponentialSchedule::operator()(std::int64_t step) const {
  if (const auto factor = WarmupFactor(warmup_steps, step)) return *factor;
  return Power(decay, step - warmup_steps);
}

Status ExponentialSchedule::Validate() const {
  AIT_RETURN_IF_ERROR(CheckWarmup("exponential", warmup_steps));
  return CheckFactor("exponential", "decay", decay);
}

double StepSchedule::operator()(std::int64_t step) const {
  if (const auto factor = WarmupFactor(warmup_steps, step)) return *factor;
  return Power(decay, (step - warmup_steps) / every);
}

Status StepSchedule::Validate() const {
  AIT_RETURN_IF_ERROR(CheckWarmup("step", warmup_steps));
  if (every < 1)
    return InvalidArgumentError("step schedule: every is ", every, "; it must be at least 1");
  return CheckFactor("step", "decay", decay);
}

double MultiStepSchedule::operator()(std::int64_t step) const {
  if (const auto factor = WarmupFactor(warmup_steps, step)) return *factor;
  const auto passed = std::ranges::upper_bound(milestones, step);
  return Power(decay, std::distance(milestones.begin(), passed));
}

Status MultiStepSchedule::Validate() const {
  AIT_RETURN_IF_ERROR(CheckWarmup("multi-step", warmup_steps));
  AIT_RETURN_IF_ERROR(CheckAscending("multi-step", milestones, 0));
  return CheckFactor("multi-step", "decay", decay);
}

double WarmupStableDecaySchedule::operator()(std::int64_t step) const {
  if (const auto factor = WarmupFactor(warmup_steps, step)) return *factor;
  const std::int64_t begin = total_steps - decay_steps;
  if (step < begin) return 1;
  return final_factor + (1 - final_factor) * Fall(shape, Progress(begin, total_steps, step));
}

Status WarmupStableDecaySchedule::Validate() const {
  AIT_RETURN_IF_ERROR(CheckDecay("warm-up-stable-decay", warmup_steps, total_steps, final_factor));
  if (decay_steps >= 1 && decay_steps <= total_steps - warmup_steps) return OkStatus();
  return InvalidArgumentError("warm-up-stable-decay schedule: decay_steps is ", decay_steps,
                              "; it must be 1 to the steps after warm-up, ",
                              total_steps - warmup_steps);
}

double OneCycleSchedule::operator()(std::int64_t step) const {
  const double initial = 1 / initial_divisor;
  const double least = initial / final_divisor;
  const double last = static_cast<double>(total_steps) - 1;
  const double top = rise * static_cast<double>(total_steps) - 1;
  const double s = std::min(static_cast<double>(step), last);
  const auto between = [&](double from, double to, double begin, double end) {
    return to + (from - to) * Fall(shape, end > begin ? (s - begin) / (end - begin) : 1);
  };
  if (s <= top) return between(initial, 1, 0, top);
  if (phases == OneCyclePhases::kTwo) return between(1, least, top, last);
  const double low = 2 * rise * static_cast<double>(total_steps) - 2;
  return s <= low ? between(1, initial, top, low) : between(initial, least, low, last);
}

Status OneCycleSchedule::Validate() const {
  if (total_steps < 2) {
    return InvalidArgumentError("one-cycle schedule: total_steps is ", total_steps,
                                "; it must be at least 2");
  }
  const double most = phases == OneCyclePhases::kThree ? 0.5 : 1;
  if (!(rise >= 0 && rise <= most)) {
    return InvalidArgumentError("one-cycle schedule: rise is ", rise, "; it must be 0 to ", most);
  }
  for (const auto& [name, divisor] :
       {std::pair{"initial_divisor", initial_divisor}, std::pair{"final_divisor", final_divisor}}) {
    if (std::isfinite(divisor) && divisor >= 1) continue;
    return InvalidArgumentError("one-cycle schedule: ", name, " is ", divisor,
                                "; it must be finite and at least 1");
  }
  if (shape != DecayShape::kOneMinusRoot) return OkStatus();
  return InvalidArgumentError(
      "one-cycle schedule: shape is kOneMinusRoot; it must be kCosine or kLinear");
}

double ChainedSchedule::operator()(std::int64_t step) const {
  double factor = 1;
  for (const Schedule& schedule : schedules) factor *= schedule.FactorAt(step);
  return factor;
}

Status ChainedSchedule::Validate() const {
  if (schedules.empty()) {
    return InvalidArgumentError("chained schedule: schedules is empty; give it at least one");
  }
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    AIT_RETURN_IF_ERROR(Annotate(schedules[i].Validate(), StrCat("chained schedule, number ", i)));
  }
  return OkStatus();
}

double SequentialSchedule::operator()(std::int64_t step) const {
  const auto passed = std::ranges::upper_bound(milestones, step);
  const auto i = static_cast<std::size_t>(std::distance(milestones.begin(), passed));
  return schedules[i].FactorAt(i == 0 ? step : step - milestones[i - 1]);
}

Status SequentialSchedule::Validate() const {
  if (schedules.size() != milestones.size() + 1) {
    return InvalidArgumentError("sequential schedule: there are ", schedules.size(),
                                " schedules and ", milestones.size(),
                                " milestones; give one milestone fewer than schedules");
  }
  AIT_RETURN_IF_ERROR(CheckAscending("sequential", milestones, 1));
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    AIT_RETURN_IF_ERROR(
        Annotate(schedules[i].Validate(), StrCat("sequential schedule, number ", i)));
  }
  return OkStatus();
}

}  // namespace ait::inline v0
