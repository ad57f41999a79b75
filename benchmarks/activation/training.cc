// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <torch/utils.h>

#include <utility>

#include "ait/base/throw_on_error.h"
#include "ait/optim/adam.h"
#include "ait/parallel/module.h"

namespace ait::benchmarks {

std::vector<std::string> BlockNames(const GptConfig& config) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < config.layers; ++i) names.push_back("blocks." + std::to_string(i));
  return names;
}

Training::Training(const GptConfig& config, std::unique_ptr<ActivationPlan> plan)
    : model_((torch::manual_seed(1), config)),
      plan_(std::move(plan)),
      world_(ThrowOnError(World::FromEnvironment())) {
  engine_ = ThrowOnError(DataParallel::Create(world_->communicator(), NamedParameters(*model_)));
  ThrowOnError(engine_->SetOptimizer(AdamW{
      {.learning_rate = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}}));
  const at::Tensor tokens =
      at::randint(config.vocabulary, {config.batch, config.context + 1}, at::kLong);
  inputs_ = tokens.slice(1, 0, config.context).contiguous();
  targets_ = tokens.slice(1, 1).contiguous();
}

at::Tensor Training::Forward() {
  ThrowOnError(engine_->BeginMicroStep(MicroStep::kLast));
  GptImpl& model = *model_;
  at::Tensor x = model.tok(inputs_) + model.pos->weight.narrow(0, 0, inputs_.size(1));
  for (std::size_t i = 0; i < model.blocks->size(); ++i) {
    auto* const block = model.blocks[i]->as<Block>();
    x = plan_->Run(
        "blocks." + std::to_string(i), [block](const at::Tensor& in) { return block->forward(in); },
        x);
  }
  return at::cross_entropy_loss(model.head(model.ln(x)).flatten(0, 1), targets_.flatten(), {},
                                at::Reduction::Sum);
}

void Training::Finish(const at::Tensor& loss) {
  ThrowOnError(engine_->Backward(loss));
  const GradientSummary summary =
      ThrowOnError(engine_->FinishGradients({.count = targets_.numel()}));
  ThrowOnError(engine_->Update({.gradient_scale = 1.0 / static_cast<double>(summary.count)}));
}

}  // namespace ait::benchmarks
