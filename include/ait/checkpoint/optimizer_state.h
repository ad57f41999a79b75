// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CHECKPOINT_OPTIMIZER_STATE_H_
#define AIT_CHECKPOINT_OPTIMIZER_STATE_H_

// The state of an optimizer to and from one safetensors file, by the names of parameters: saved by
// any number of ranks at any ZeRO stage, loaded by any other.
//
//   AIT_RETURN_IF_ERROR(SaveWeights("run/weights.safetensors", engine->parameters()));
//   AIT_RETURN_IF_ERROR(SaveOptimizer("run/optimizer.safetensors", *engine, optimizer));
//   …
//   AIT_RETURN_IF_ERROR(engine->SetOptimizer(optimizer));     // after the weights are loaded
//   AIT_RETURN_IF_ERROR(LoadOptimizer("run/optimizer.safetensors", *engine, optimizer).status());
//
// What is in the file, with the names that torch.optim has (docs/checkpoint.md shows the way to and
// from `optimizer.state_dict()`):
//
//   "step"                     int64: steps taken
//   "state.<parameter>.<name>" "exp_avg", "exp_avg_sq", "momentum_buffer", "row_var", …, "master",
//                              "remainder": row-major, in the dtype in which it is kept
//   metadata                   "optimizer_format", "optimizer", "state_version", "description", and
//                              "param_groups" as JSON: options and names of parameters
//
// Elements are row-major in the shape of the parameter, whatever its memory format, except those of
// blockwise states, which are in the order of memory: such a file fits the same strides only.
//
// **Thread-safety.** The engine is not used by anybody else during a call, and no step is open.

#include <cstdint>
#include <string>

#include "ait/base/status.h"
#include "ait/optim/optimizer.h"
#include "ait/parallel/data_parallel.h"

namespace ait::inline v0 {

/// Of what SaveOptimizer writes; another one is refused.
inline constexpr int kOptimizerFormat = 1;

/// **Collective. Blocks.** Gathers the state of `engine`, whose optimizer was bound from
/// `optimizer`, at rank 0, which has all of it in memory for a while and writes the file, durably:
/// the old file stays until the new one is complete.
/// **Errors.** On every rank: FailedPrecondition: the engine has no optimizer; those of
/// `WriteSafetensors` and of the communicator.
Status SaveOptimizer(const std::string& path, DataParallel& engine, const Optimizer& optimizer);

/// What a file says about the run that it came from.
struct LoadedOptimizer {
  std::int64_t step = 0;
  /// `Optimizer::Describe` of that run. Options may differ: rates change from run to run.
  std::string description;
};

/// **Collective. Blocks.** Every rank reads what it owns from the file, which all of them see. A
/// "master" becomes a "remainder" where the engine keeps those, and the other way round where
/// parameters are whole in memory.
/// **Errors.** On every rank, and nothing is changed then: FailedPrecondition: another format
/// version, optimizer or state version, a parameter or a state that is missing or unknown, another
/// shape or dtype; the message names it and both values. DataLoss: the file is damaged; by errno.
/// After an error while state is read, which says so, load again or end the run.
StatusOr<LoadedOptimizer> LoadOptimizer(const std::string& path, DataParallel& engine,
                                        const Optimizer& optimizer);

}  // namespace ait::inline v0

#endif  // AIT_CHECKPOINT_OPTIMIZER_STATE_H_
