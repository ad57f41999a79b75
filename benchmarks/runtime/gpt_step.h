// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_RUNTIME_GPT_STEP_H_
#define AIT_BENCHMARKS_RUNTIME_GPT_STEP_H_

// One training step of the GPT of examples/03-gpt with `DataParallel`, in whatever way the options
// say. The work is that of benchmarks/peers/gpt.py. For ZeRO-3 the embeddings, each block and the
// head are units; for activation checkpointing each block is a segment.
//
//   GptStep step(config, communicator, {.zero_stage = ZeroStage::kOptimizer});
//   step.Run(GptBatch::Random(config));

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ait/activation/segments.h"
#include "ait/comm/communicator.h"
#include "ait/comm/world.h"
#include "ait/parallel/data_parallel.h"
#include "gpt.h"

namespace ait::benchmarks {

struct GptBatch {
  at::Tensor inputs, targets;  // [batch, context]

  static GptBatch Random(const GptConfig& config);
};

/// The embeddings, each block and the head as units.
DataParallelOptions WithUnits(DataParallelOptions options, const NamedTensors& parameters);

class GptStep {
 public:
  /// **Collective.** Makes a model, moves it into an engine and binds AdamW; the forward runs under
  /// Autocast(autocast). Throws StatusException.
  GptStep(const GptConfig& config, std::shared_ptr<Communicator> communicator,
          DataParallelOptions options = {}, DType autocast = DType::kFloat32);

  /// **Collective.** Forward, backward, decision, update.
  void Run(const GptBatch& batch);

  const DataParallel& engine() const { return *engine_; }
  /// The blocks are its segments, "blocks.0" and so on.
  ActivationPlan& plan() { return plan_; }
  std::int64_t parameter_count() const;  // elements

 private:
  at::Tensor Forward(const at::Tensor& inputs);

  Gpt model_;
  DType autocast_;
  ActivationPlan plan_;
  std::unique_ptr<DataParallel> engine_;
};

using Milliseconds = std::map<std::string, std::vector<double>>;  // variant -> one a round

/// A way to take a step, by name.
using NamedStep = std::pair<std::string, std::function<void()>>;

/// **Collective.** Lets the steps take turns, in every round another one first; a step takes as
/// long as its slowest rank. Two rounds more than `rounds` are run before.
Milliseconds Alternate(Communicator& all, const std::vector<NamedStep>& steps, int rounds);

/// **Collective.** A communicator of its own over shared memory for each engine, since an engine
/// uses it while others train.
std::shared_ptr<Communicator> JoinSharedMemoryOf(World& world, const std::string& key);

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_RUNTIME_GPT_STEP_H_
