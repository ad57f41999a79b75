// SPDX-License-Identifier: Apache-2.0
// What each precision costs and gives: the GPT of 03-gpt, trained once in every one from the same
// weights on the same tokens, and a table.
#include <ATen/Parallel.h>

#include <cstdio>
#include <map>
#include <string>

#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/data/token_dataset.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "gpt.h"
#include "modes.h"

namespace {

// What may be said on the command line, and what holds if it is not.
std::map<std::string, std::string> options = {
    {"--size", "quickstart"}, {"--steps", "200"}, {"--data", "build/data/gcide"}, {"--only", ""}};

/// Trains from scratch in one mode and prints its line of the table.
ait::Status Run(ait::World& world, const GptConfig& config, const Mode& mode) {
  AIT_ASSIGN_OR_RETURN(
      auto data, ait::TokenDataset::Open(options["--data"],
                                         {.sequence_length = config.context,
                                          .global_batch_size = config.batch * world.size().value(),
                                          .shard = world.shard(),
                                          .seed = 1,
                                          .epochs = ait::kUnlimitedEpochs}));
  torch::manual_seed(1);
  Gpt model(config);
  AIT_ASSIGN_OR_RETURN(auto engine,
                       ait::DataParallel::Create(world.communicator(), ait::NamedParameters(*model),
                                                 {.precision = mode.precision}));
  const std::int64_t steps = std::stoll(options["--steps"]);
  ait::Trainer trainer(
      *engine,
      ait::AdamW{{.learning_rate = 3e-3, .beta2 = 0.95, .weight_decay = 0.1},
                 {ait::NoDecayForNormsAndBiases()}},
      {.clip_norm = 1.0,
       .autocast = mode.autocast,
       .loss_scaler = mode.loss_scaler,
       .schedule = ait::CosineSchedule{.warmup_steps = steps / 10, .total_steps = steps + 1},
       .total_steps = steps});
  double loss = 0, seconds = 0;  // of the last tenth, and without the first
  while (!trainer.done()) {
    const ait::TokenBatch* batch = data.Next();
    if (batch == nullptr) return data.status();
    auto step = trainer.Step(*batch, [&](const ait::TokenBatch& b) {
      const at::Tensor logits = model->forward(ait::Inputs(b));
      return ait::LossSum{ait::SumOfCrossEntropy(logits.to(at::kFloat), ait::Targets(b)),
                          b.token_count()};
    });
    if (!step.ok()) return step.status();
    const std::int64_t done = trainer.step();
    if (done > steps - steps / 10) loss += *step->metrics.loss / static_cast<double>(steps / 10);
    if (done > steps / 10) seconds += ait::Seconds(*step->metrics.step_time);
  }
  const ait::MemoryBytes memory = engine->Memory().measured;
  double count = 0;
  for (const ait::FlatSlot& slot : engine->layout().groups()[0].slots)
    count += static_cast<double>(slot.count);
  const auto each = [&](std::int64_t bytes) { return static_cast<double>(bytes) / count; };
  if (world.rank() == ait::Rank(0)) {
    std::printf("%-20s %8.2f %8.2f %8.2f %8.2f %8.2f %9.2f %8.4f\n", mode.name.c_str(),
                each(memory.parameters), each(memory.gradients), each(memory.masters),
                each(memory.states), each(memory.total()),
                static_cast<double>(steps - steps / 10) / seconds, loss);
    std::fflush(stdout);
  }
  return ait::OkStatus();
}

ait::Status RunAll() {
  const auto config = GptConfig::Named(options["--size"]);
  if (!config) return ait::InvalidArgumentError("no size ", options["--size"]);
  if (std::stoll(options["--steps"]) < 10)
    return ait::InvalidArgumentError("--steps is ", options["--steps"], "; it must be 10 or more");
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment(
                                       {.transport = ait::Automatic({.between = ait::Gloo()})}));
  at::set_num_threads(world->threads());
  if (world->rank() == ait::Rank(0)) {
    std::printf("%-20s %44s\n%-20s %8s %8s %8s %8s %8s %9s %8s\n", "", "bytes a parameter", "mode",
                "params", "grads", "masters", "states", "total", "steps/s", "loss");
  }
  for (const Mode& mode : Modes()) {
    if (mode.name.find(options["--only"]) == std::string::npos) continue;
    AIT_RETURN_IF_ERROR(ait::Annotate(Run(*world, *config, mode), mode.name));
  }
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  ait::Status status;
  for (int i = 1; i < argc && status.ok(); i += 2) {
    if (i + 1 == argc || !options.contains(argv[i])) {
      status = ait::InvalidArgumentError(
          "usage: precision [--size tiny|quickstart|A|B] [--steps N] [--data DIR] [--only TEXT]");
    } else {
      options[argv[i]] = argv[i + 1];
    }
  }
  if (status.ok()) status = RunAll();
  if (!status.ok()) std::fprintf(stderr, "precision: %s\n", ait::Message(status).c_str());
  return status.ok() ? 0 : 1;
}
