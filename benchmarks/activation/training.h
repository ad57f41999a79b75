// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_ACTIVATION_TRAINING_H_
#define AIT_BENCHMARKS_ACTIVATION_TRAINING_H_

// One process that trains the GPT of examples/03-gpt with a plan for its activations.
//
//   Training training(config, ThrowOnError(PlanFor("block", config)));
//   training.Step();

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ait/activation/segments.h"
#include "ait/comm/world.h"
#include "ait/parallel/data_parallel.h"
#include "gpt.h"

namespace ait::benchmarks {

/// "blocks.0", "blocks.1", …
std::vector<std::string> BlockNames(const GptConfig& config);

class Training {
 public:
  Training(const GptConfig& config, std::unique_ptr<ActivationPlan> plan);

  /// Forward, as a loss.
  at::Tensor Forward();
  /// Backward of it, and the update.
  void Finish(const at::Tensor& loss);
  void Step() { Finish(Forward()); }

  ActivationPlan& plan() { return *plan_; }

 private:
  Gpt model_;
  std::unique_ptr<ActivationPlan> plan_;
  std::unique_ptr<World> world_;
  std::unique_ptr<DataParallel> engine_;
  at::Tensor inputs_, targets_;
};

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_ACTIVATION_TRAINING_H_
