// SPDX-License-Identifier: Apache-2.0
#include "gpt_step.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>

#include <chrono>
#include <string>

#include "ait/base/throw_on_error.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/world.h"
#include "ait/optim/adam.h"
#include "ait/parallel/module.h"
#include "ait/parallel/unit.h"
#include "ait/tensor/autocast.h"

namespace ait::benchmarks {

GptBatch GptBatch::Random(const GptConfig& config) {
  const at::Tensor tokens =
      at::randint(config.vocabulary, {config.batch, config.context + 1}, at::kLong);
  return {.inputs = tokens.slice(1, 0, config.context).contiguous(),
          .targets = tokens.slice(1, 1).contiguous()};
}

DataParallelOptions WithUnits(DataParallelOptions options, const NamedTensors& parameters) {
  options.units = UnitsUnder("blocks", parameters);
  options.units.push_back({.name = "embeddings", .patterns = {"tok.*", "pos.*"}});
  options.units.push_back({.name = "head", .patterns = {"ln.*", "head.*"}});
  return options;
}

GptStep::GptStep(const GptConfig& config, std::shared_ptr<Communicator> communicator,
                 DataParallelOptions options, DType autocast)
    : model_(config), autocast_(autocast) {
  const NamedTensors parameters = NamedParameters(*model_);
  engine_ = ThrowOnError(DataParallel::Create(std::move(communicator), parameters,
                                              WithUnits(std::move(options), parameters)));
  ThrowOnError(engine_->SetOptimizer(AdamW{
      {.learning_rate = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}}));
}

at::Tensor GptStep::Forward(const at::Tensor& inputs) {
  const Autocast scope(autocast_);
  GptImpl& model = *model_;
  at::Tensor x = engine_->Unit("embeddings", [&] {
    return model.tok(inputs) + model.pos->weight.narrow(0, 0, inputs.size(1));
  });
  for (std::size_t i = 0; i < model.blocks->size(); ++i) {
    auto* const block = model.blocks[i]->as<Block>();
    const std::string name = "blocks." + std::to_string(i);
    x = plan_.Run(
        name,
        [this, name, block](const at::Tensor& in) {
          return engine_->Unit(name, [&] { return block->forward(in); });
        },
        x);
  }
  return engine_->Unit("head", [&] { return model.head(model.ln(x)); });
}

void GptStep::Run(const GptBatch& batch) {
  ThrowOnError(engine_->BeginMicroStep(MicroStep::kLast));
  const at::Tensor logits = Forward(batch.inputs).flatten(0, 1).to(at::kFloat);
  const at::Tensor loss =
      at::cross_entropy_loss(logits, batch.targets.flatten(), {}, at::Reduction::Sum);
  ThrowOnError(engine_->Backward(loss));
  const GradientSummary summary =
      ThrowOnError(engine_->FinishGradients({.count = batch.targets.numel()}));
  ThrowOnError(engine_->Update({.gradient_scale = 1.0 / static_cast<double>(summary.count)}));
}

std::int64_t GptStep::parameter_count() const {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model_->parameters()) count += parameter.numel();
  return count;
}

Milliseconds Alternate(Communicator& all, const std::vector<NamedStep>& steps, int rounds) {
  constexpr int kWarm = 2;
  Milliseconds samples;
  for (int round = 0; round < rounds + kWarm; ++round) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto& [name, step] = steps[(i + static_cast<std::size_t>(round)) % steps.size()];
      ThrowOnError(all.Barrier().Wait());
      const Time start = SystemClock().now();
      step();
      std::vector<double> slowest = {
          std::chrono::duration<double, std::milli>(SystemClock().now() - start).count()};
      ThrowOnError(all.AllReduce(View(slowest), ReduceOp::kMax).Wait());
      if (round >= kWarm) samples[name].push_back(slowest[0]);
    }
  }
  return samples;
}

std::shared_ptr<Communicator> JoinSharedMemoryOf(World& world, const std::string& key) {
  return std::make_shared<Communicator>(ThrowOnError(JoinSharedMemory(
      *world.store(), key, world.rank(), world.size(), Deadline::After(std::chrono::seconds(60)))));
}

}  // namespace ait::benchmarks
