// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_RUNTIME_TRAINER_STATE_H_
#define AIT_RUNTIME_TRAINER_STATE_H_

// The numbers that a trainer must remember between runs, beside weights, optimizer state and the
// place in the data: where the schedule is, the loss scale, what the plateau schedule has seen.
//
//   TrainerState state = trainer.state();            // the same on every rank
//   std::string text = ToText(state);                // a few lines
//   AIT_ASSIGN_OR_RETURN(state, TrainerStateFromText(text));
//   AIT_RETURN_IF_ERROR(trainer.set_state(state));   // on every rank

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ait/base/status.h"
#include "ait/optim/loss_scaler.h"
#include "ait/optim/plateau.h"

namespace ait::inline v0 {

struct TrainerState {
  static constexpr int kVersion = 1;
  std::int64_t step = 0;     // made so far, skipped ones included
  std::int64_t updates = 0;  // of them, those that moved the weights: the place in the schedule
  std::int64_t skipped_in_a_row = 0;           // with a loss or gradient that was not finite
  std::optional<LossScalerState> loss_scaler;  // of a trainer with one
  std::optional<PlateauState> plateau;         // of a trainer with one

  bool operator==(const TrainerState&) const = default;
};

/// One line for each part, and back.
/// **Errors.** DataLoss: no such text, or a part that is not known; FailedPrecondition: a part of
/// another version, both are named.
std::string ToText(const TrainerState& state);
StatusOr<TrainerState> TrainerStateFromText(std::string_view text);

}  // namespace ait::inline v0

#endif  // AIT_RUNTIME_TRAINER_STATE_H_
