// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/plateau.h"

#include <algorithm>
#include <cmath>

#include "optim/state_text.h"

namespace ait::inline v0 {
namespace {

constexpr std::string_view kKind = "plateau";

Status CheckCount(std::string_view option, std::int64_t value) {
  if (value >= 0) return OkStatus();
  return InvalidArgumentError("plateau: ", option, " is ", value, "; it must not be negative");
}

Status CheckNotNegative(std::string_view option, double value) {
  if (std::isfinite(value) && value >= 0) return OkStatus();
  return InvalidArgumentError("plateau: ", option, " is ", value,
                              "; it must be finite and not negative");
}

}  // namespace

Status PlateauOptions::Validate() const {
  if (!(decay > 0 && decay < 1)) {
    return InvalidArgumentError("plateau: decay is ", decay, "; it must be above 0 and below 1");
  }
  AIT_RETURN_IF_ERROR(CheckCount("patience", patience));
  AIT_RETURN_IF_ERROR(CheckCount("cooldown", cooldown));
  AIT_RETURN_IF_ERROR(CheckNotNegative("threshold", threshold));
  if (threshold_is == Threshold::kRelative && threshold >= 1) {
    return InvalidArgumentError("plateau: threshold is ", threshold,
                                "; relative to the best it must be below 1");
  }
  AIT_RETURN_IF_ERROR(CheckNotNegative("least_change", least_change));
  if (!(min_factor >= 0 && min_factor <= 1)) {
    return InvalidArgumentError("plateau: min_factor is ", min_factor, "; it must be 0 to 1");
  }
  return OkStatus();
}

Plateau::Plateau(PlateauOptions options) : options_(options) {
  if (options.better == PlateauOptions::Better::kLarger) state_.best = -state_.best;
}

bool Plateau::IsBetter(double metric) const {
  const bool smaller = options_.better == PlateauOptions::Better::kSmaller;
  const double sign = smaller ? -1 : 1;
  const double bound = options_.threshold_is == PlateauOptions::Threshold::kRelative
                           ? state_.best * (1 + sign * options_.threshold)
                           : state_.best + sign * options_.threshold;
  return smaller ? metric < bound : metric > bound;
}

void Plateau::Observe(double metric) {
  if (IsBetter(metric)) {
    state_.best = metric;
    state_.not_better = 0;
  } else {
    ++state_.not_better;
  }
  if (state_.cooldown_left > 0) {
    --state_.cooldown_left;
    state_.not_better = 0;
  }
  if (state_.not_better <= options_.patience) return;
  const double lower = std::max(state_.factor * options_.decay, options_.min_factor);
  if (state_.factor - lower > options_.least_change) state_.factor = lower;
  state_.cooldown_left = options_.cooldown;
  state_.not_better = 0;
}

Status Plateau::set_state(const PlateauState& state) {
  if (!(state.factor >= 0 && state.factor <= 1)) {
    return InvalidArgumentError("plateau: the saved factor is ", state.factor,
                                "; it must be 0 to 1");
  }
  AIT_RETURN_IF_ERROR(CheckCount("the saved not_better", state.not_better));
  AIT_RETURN_IF_ERROR(CheckCount("the saved cooldown_left", state.cooldown_left));
  state_ = state;
  return OkStatus();
}

std::string ToText(const PlateauState& state) {
  return internal::StateWriter(kKind, PlateauState::kVersion)
      .Add("factor", state.factor)
      .Add("best", state.best)
      .Add("not_better", state.not_better)
      .Add("cooldown_left", state.cooldown_left)
      .text();
}

StatusOr<PlateauState> PlateauStateFromText(std::string_view text) {
  AIT_ASSIGN_OR_RETURN(const auto reader,
                       internal::StateReader::Parse(kKind, PlateauState::kVersion, text));
  PlateauState state;
  AIT_RETURN_IF_ERROR(reader.Read("factor", state.factor));
  AIT_RETURN_IF_ERROR(reader.Read("best", state.best));
  AIT_RETURN_IF_ERROR(reader.Read("not_better", state.not_better));
  AIT_RETURN_IF_ERROR(reader.Read("cooldown_left", state.cooldown_left));
  return state;
}

}  // namespace ait::inline v0
