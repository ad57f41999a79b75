// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_WHOLE_PARAMETERS_H_
#define AIT_PARALLEL_WHOLE_PARAMETERS_H_

// `WholeParameters`: all parameters of a `DataParallel` engine are whole on this rank while it
// lives, whatever the stage: for evaluation, for saving and for loading.
//
//   {
//     AIT_ASSIGN_OR_RETURN(WholeParameters whole, engine->GatherFull());
//     AIT_RETURN_IF_ERROR(SaveWeights("weights.safetensors", engine->parameters()));
//   }
//   AIT_ASSIGN_OR_RETURN(WholeParameters whole, engine->GatherFull());
//   AIT_RETURN_IF_ERROR(LoadWeights("weights.safetensors", engine->parameters()).status());
//   AIT_RETURN_IF_ERROR(whole.Keep());
//
// With ZeroStage::kParameters it takes the memory of all units. The engine outlives it, or it ends
// with the engine.

#include <memory>

#include "ait/base/status.h"

namespace ait::inline v0 {

class DataParallel;

class [[nodiscard]] WholeParameters {
 public:
  WholeParameters(WholeParameters&&) noexcept;
  WholeParameters& operator=(WholeParameters&&) noexcept;
  /// Releases what was gathered. Values that were written and not kept are lost.
  ~WholeParameters();

  /// **Collective. Blocks.** Makes what the parameters hold, which is the same on all ranks, the
  /// parameters of the engine, its slices and fp32 masters too. Between steps only.
  /// **Errors.** FailedPrecondition, and nothing is changed: a step is not over, or one has released
  /// what was gathered since. Those of the optimizer end the engine.
  Status Keep();

 private:
  friend class DataParallel;
  struct State;
  explicit WholeParameters(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_WHOLE_PARAMETERS_H_
