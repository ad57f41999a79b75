// SPDX-License-Identifier: Apache-2.0
#include "ait/runtime/trainer_state.h"

#include <algorithm>

#include "optim/state_text.h"

namespace ait::inline v0 {
namespace {

constexpr std::string_view kKind = "trainer";

Status ReadTrainer(std::string_view line, TrainerState& state) {
  AIT_ASSIGN_OR_RETURN(const auto reader,
                       internal::StateReader::Parse(kKind, TrainerState::kVersion, line));
  AIT_RETURN_IF_ERROR(reader.Read("step", state.step));
  AIT_RETURN_IF_ERROR(reader.Read("updates", state.updates));
  return reader.Read("skipped_in_a_row", state.skipped_in_a_row);
}

}  // namespace

std::string ToText(const TrainerState& state) {
  std::string text = internal::StateWriter(kKind, TrainerState::kVersion)
                         .Add("step", state.step)
                         .Add("updates", state.updates)
                         .Add("skipped_in_a_row", state.skipped_in_a_row)
                         .text() +
                     "\n";
  if (state.loss_scaler) text += ToText(*state.loss_scaler) + "\n";
  if (state.plateau) text += ToText(*state.plateau) + "\n";
  return text;
}

StatusOr<TrainerState> TrainerStateFromText(std::string_view text) {
  TrainerState state;
  if (!text.starts_with("trainer ")) {
    return DataLossError("not a saved state of a trainer: \"", text.substr(0, 80), "\"");
  }
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const std::string_view kind = line.substr(0, line.find(' '));
    if (kind == kKind) {
      AIT_RETURN_IF_ERROR(ReadTrainer(line, state));
    } else if (kind == "loss_scaler") {
      AIT_ASSIGN_OR_RETURN(state.loss_scaler, LossScalerStateFromText(line));
    } else if (kind == "plateau") {
      AIT_ASSIGN_OR_RETURN(state.plateau, PlateauStateFromText(line));
    } else {
      return DataLossError("the saved state of a trainer has a part of unknown kind: \"",
                           line.substr(0, 80), "\"");
    }
  }
  return state;
}

}  // namespace ait::inline v0
