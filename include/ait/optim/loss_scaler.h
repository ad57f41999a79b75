// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_LOSS_SCALER_H_
#define AIT_OPTIM_LOSS_SCALER_H_

// `LossScaler`: the number that losses are multiplied by before backward, so that gradients of fp16
// do not vanish.
//
// The least fp16 above 0 is 6e-8: smaller gradients become zeros. Multiplying the loss moves all
// gradients up; the update divides them again, within its one pass. Too large a scale makes
// infinities: the step is skipped, and the scale backs off. When there were none for a while it
// grows again (Micikevicius et al., arXiv:1710.03740).
//
//   after a step          scale                                      counter of clean steps
//   finite                · growth, when `growth_interval` in a row  + 1, or 0 after a growth
//   not finite            · backoff, from the `hysteresis`-th on     0
//
// The allowance of hysteresis comes back when the scale grows, as in Megatron-LM and DeepSpeed; 1
// is the rule of torch's GradScaler. The scale stays within `min_scale` and `max_scale`.
//
// Whether a step was finite is a decision of all ranks (`GradientSummary::finite`), so that all
// have the same scale. bf16 has the range of fp32, and neither needs a scale: do not use one.
//
//   ait::LossScaler scaler({.initial_scale = 65536});
//   (loss * scaler.scale()).backward();
//   auto sum = engine->FinishGradients({.count = tokens, .loss_scale = scaler.scale()});
//   if (sum->finite) engine->Update({.gradient_scale = 1 / (scaler.scale() * sum->count)});
//   AIT_RETURN_IF_ERROR(scaler.Update(sum->finite ? Gradients::kFinite : Gradients::kNotFinite));
//
// `Trainer` does this with `TrainerOptions::loss_scaler`.

#include <cstdint>
#include <string>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0 {

struct LossScalerOptions {
  enum class Mode : std::uint8_t {
    kDynamic,
    kStatic  // the scale stays; steps that are not finite are skipped and counted
  };

  Mode mode = Mode::kDynamic;
  double initial_scale = 65536;         // within min_scale and max_scale
  double growth = 2;                    // > 1
  std::int64_t growth_interval = 2000;  // clean steps in a row; ≥ 1
  double backoff = 0.5;                 // 0 < backoff < 1
  int hysteresis = 1;                   // ≥ 1
  double min_scale = 1;                 // > 0
  double max_scale = 16777216;          // finite in fp32
  int skip_limit = 50;                  // skipped steps in a row that are borne; ≥ 0

  static LossScalerOptions Static(double scale) {
    return {.mode = Mode::kStatic, .initial_scale = scale};
  }

  /// **Errors.** InvalidArgument that names the option and its value.
  Status Validate() const;
  /// All of it as text, the same on every rank.
  std::string Describe() const;
};

/// What must be saved to go on as if nothing had happened.
struct LossScalerState {
  static constexpr int kVersion = 1;
  double scale = 1;
  std::int64_t clean_steps = 0;      // in a row, since the last growth
  std::int64_t hysteresis_left = 1;  // steps not finite, the next of which backs off
  std::int64_t skipped_in_a_row = 0;
  std::int64_t skipped = 0;  // since the run began

  bool operator==(const LossScalerState&) const = default;
};

/// One line of text, and back. **Errors.** DataLoss: not such a line; FailedPrecondition: of
/// another version, both are named.
std::string ToText(const LossScalerState& state);
StatusOr<LossScalerState> LossScalerStateFromText(std::string_view text);

/// What all ranks have found in the gradients of a step.
enum class Gradients : std::uint8_t { kFinite, kNotFinite };

/// A value. **Thread-safety.** As any value.
class LossScaler {
 public:
  /// `options` that `Validate` accepts.
  explicit LossScaler(LossScalerOptions options = {});

  /// To multiply the losses of the step by.
  double scale() const { return state_.scale; }

  /// Ends a step: the scale may change for the next one.
  /// **Errors.** OutOfRange: more than `skip_limit` steps in a row were not finite; with the scale
  /// and what to do.
  Status Update(Gradients gradients);

  const LossScalerOptions& options() const { return options_; }
  const LossScalerState& state() const { return state_; }
  /// Continues from a saved state; a scale outside of the limits is brought inside, and a static
  /// one is that of the options.
  /// **Errors.** InvalidArgument: a scale that is not finite and positive, a negative count.
  Status set_state(const LossScalerState& state);

 private:
  LossScalerOptions options_;
  LossScalerState state_;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_LOSS_SCALER_H_
