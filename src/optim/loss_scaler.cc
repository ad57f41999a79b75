// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/state_text.h"

namespace ait::inline v0 {
namespace {

using Mode = LossScalerOptions::Mode;

constexpr std::string_view kKind = "loss_scaler";

template <typename T>
Status Check(bool good, std::string_view option, T value, std::string_view allowed) {
  if (good) return OkStatus();
  return InvalidArgumentError("loss scaler: ", option, " is ", value, "; it must be ", allowed);
}

}  // namespace

Status LossScalerOptions::Validate() const {
  constexpr double kLargest = std::numeric_limits<float>::max();
  AIT_RETURN_IF_ERROR(Check(min_scale > 0, "min_scale", min_scale, "above 0"));
  AIT_RETURN_IF_ERROR(Check(max_scale >= min_scale && max_scale <= kLargest, "max_scale", max_scale,
                            "at least min_scale and finite in fp32"));
  AIT_RETURN_IF_ERROR(Check(
      initial_scale >= min_scale && initial_scale <= max_scale, "initial_scale", initial_scale,
      StrCat("within min_scale and max_scale, ", min_scale, " to ", max_scale)));
  AIT_RETURN_IF_ERROR(Check(std::isfinite(growth) && growth > 1, "growth", growth, "above 1"));
  AIT_RETURN_IF_ERROR(
      Check(growth_interval >= 1, "growth_interval", growth_interval, "at least 1"));
  AIT_RETURN_IF_ERROR(Check(backoff > 0 && backoff < 1, "backoff", backoff, "above 0 and below 1"));
  AIT_RETURN_IF_ERROR(Check(hysteresis >= 1, "hysteresis", hysteresis, "at least 1"));
  return Check(skip_limit >= 0, "skip_limit", skip_limit, "at least 0");
}

std::string LossScalerOptions::Describe() const {
  return StrCat(mode == Mode::kDynamic ? "dynamic" : "static", " initial_scale ", initial_scale,
                " growth ", growth, " growth_interval ", growth_interval, " backoff ", backoff,
                " hysteresis ", hysteresis, " min_scale ", min_scale, " max_scale ", max_scale,
                " skip_limit ", skip_limit);
}

LossScaler::LossScaler(LossScalerOptions options)
    : options_(options),
      state_{.scale = options.initial_scale, .hysteresis_left = options.hysteresis} {}

Status LossScaler::Update(Gradients gradients) {
  const bool dynamic = options_.mode == Mode::kDynamic;
  if (gradients == Gradients::kFinite) {
    state_.skipped_in_a_row = 0;
    if (++state_.clean_steps < options_.growth_interval) return OkStatus();
    state_.clean_steps = 0;
    state_.hysteresis_left = options_.hysteresis;
    if (dynamic) state_.scale = std::min(state_.scale * options_.growth, options_.max_scale);
    return OkStatus();
  }
  state_.clean_steps = 0;
  ++state_.skipped;
  ++state_.skipped_in_a_row;
  const double used = state_.scale;
  if (state_.hysteresis_left > 1) {
    --state_.hysteresis_left;
  } else if (dynamic) {
    state_.scale = std::max(state_.scale * options_.backoff, options_.min_scale);
  }
  if (state_.skipped_in_a_row <= options_.skip_limit) return OkStatus();
  return OutOfRangeError(
      "gradients were not finite in ", state_.skipped_in_a_row, " steps in a row, allowed are ",
      options_.skip_limit, "; the last loss scale was ", used,
      !dynamic ? ", which is static: use a smaller one, or a dynamic one"
      : used <= options_.min_scale
          ? ", the least allowed: the model overflows by itself; lower the learning rate, keep "
            "what "
            "overflows in fp32, or use bf16, which needs no scale"
          : "; allow more steps (skip_limit) for the scale to come down, or begin with a smaller "
            "one (initial_scale)");
}

Status LossScaler::set_state(const LossScalerState& state) {
  AIT_RETURN_IF_ERROR(Check(std::isfinite(state.scale) && state.scale > 0, "the saved scale",
                            state.scale, "finite and above 0"));
  for (const auto& [name, count] : {std::pair{"clean_steps", state.clean_steps},
                                    std::pair{"hysteresis_left", state.hysteresis_left},
                                    std::pair{"skipped_in_a_row", state.skipped_in_a_row},
                                    std::pair{"skipped", state.skipped}}) {
    AIT_RETURN_IF_ERROR(Check(count >= 0, StrCat("the saved ", name), count, "at least 0"));
  }
  state_ = state;
  state_.scale = options_.mode == Mode::kStatic
                     ? options_.initial_scale
                     : std::clamp(state.scale, options_.min_scale, options_.max_scale);
  state_.hysteresis_left = std::clamp<std::int64_t>(state.hysteresis_left, 1, options_.hysteresis);
  return OkStatus();
}

std::string ToText(const LossScalerState& state) {
  return internal::StateWriter(kKind, LossScalerState::kVersion)
      .Add("scale", state.scale)
      .Add("clean_steps", state.clean_steps)
      .Add("hysteresis_left", state.hysteresis_left)
      .Add("skipped_in_a_row", state.skipped_in_a_row)
      .Add("skipped", state.skipped)
      .text();
}

StatusOr<LossScalerState> LossScalerStateFromText(std::string_view text) {
  AIT_ASSIGN_OR_RETURN(const auto reader,
                       internal::StateReader::Parse(kKind, LossScalerState::kVersion, text));
  LossScalerState state;
  AIT_RETURN_IF_ERROR(reader.Read("scale", state.scale));
  AIT_RETURN_IF_ERROR(reader.Read("clean_steps", state.clean_steps));
  AIT_RETURN_IF_ERROR(reader.Read("hysteresis_left", state.hysteresis_left));
  AIT_RETURN_IF_ERROR(reader.Read("skipped_in_a_row", state.skipped_in_a_row));
  AIT_RETURN_IF_ERROR(reader.Read("skipped", state.skipped));
  return state;
}

}  // namespace ait::inline v0
