// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/schedule.h"

#include <algorithm>
#include <cmath>
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

}  // namespace ait::inline v0
