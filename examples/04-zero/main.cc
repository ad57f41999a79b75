// SPDX-License-Identifier: Apache-2.0
// The GPT of 03-gpt with its parameters, gradients and optimizer state sharded over the ranks:
//   ait run -n 2 -- zero --zero 3 --precision bf16
// Whatever the stage, the losses are the same; what differs is the memory that it prints.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>

#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/data/token_dataset.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/parallel/unit.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "gpt.h"

namespace {

// What may be said on the command line, and what holds if it is not.
std::map<std::string, std::string> options = {
    {"--zero", "2"},   {"--precision", "fp32"},        {"--size", "quickstart"},
    {"--steps", "20"}, {"--data", "build/data/gcide"}, {"--offload", ""},
    {"--out", ""}};

/// The model's forward, block by block: with stage 3 the parameters of a block are whole only while
/// it runs, forward and backward.
at::Tensor Forward(ait::DataParallel& engine, GptImpl& model, const at::Tensor& tokens) {
  at::Tensor x = model.tok(tokens) + model.pos->weight.narrow(0, 0, tokens.size(1));
  for (std::size_t i = 0; i < model.blocks->size(); ++i) {
    auto* block = model.blocks[i]->as<BlockImpl>();
    x = engine.Unit(
        "blocks." + std::to_string(i), [&](const at::Tensor& in) { return block->forward(in); }, x);
  }
  return model.head(model.ln(x));
}

ait::Status Train() {
  const auto config = GptConfig::Named(options["--size"]);
  if (!config) return ait::InvalidArgumentError("no size ", options["--size"]);
  const std::string& zero = options["--zero"];
  if (zero.size() != 1 || zero < "0" || zero > "3")
    return ait::InvalidArgumentError("--zero is ", zero, "; it must be 0, 1, 2 or 3");
  AIT_ASSIGN_OR_RETURN(const ait::Precision precision, ait::PrecisionNamed(options["--precision"]));
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment(
                                       {.transport = ait::Automatic({.between = ait::Gloo()})}));
  at::set_num_threads(world->threads());
  AIT_ASSIGN_OR_RETURN(
      auto data, ait::TokenDataset::Open(
                     options["--data"], {.sequence_length = config->context,
                                         .global_batch_size = config->batch * world->size().value(),
                                         .shard = world->shard(),
                                         .seed = 1,
                                         .epochs = ait::kUnlimitedEpochs}));

  torch::manual_seed(1);
  Gpt model(*config);
  const ait::NamedTensors parameters = ait::NamedParameters(*model);
  AIT_ASSIGN_OR_RETURN(auto engine, ait::DataParallel::Create(
                                        world->communicator(), parameters,
                                        {.zero_stage = static_cast<ait::ZeroStage>(zero[0] - '0'),
                                         .precision = precision,
                                         .units = ait::UnitsUnder("blocks", parameters),
                                         .offload = {.directory = options["--offload"]}}));
  const std::int64_t steps = std::stoll(options["--steps"]);
  ait::Trainer trainer(*engine,
                       ait::AdamW{{.learning_rate = 1e-3, .beta2 = 0.95, .weight_decay = 0.1},
                                  {ait::NoDecayForNormsAndBiases()}},
                       {.clip_norm = 1.0,
                        .schedule = ait::CosineSchedule{.warmup_steps = steps / 10 + 1,
                                                        .total_steps = steps + steps / 10 + 2},
                        .total_steps = steps,
                        .directory = options["--out"],
                        .progress = ait::ProgressTo(STDERR_FILENO)});
  double loss = 0;
  while (!trainer.done()) {
    const ait::TokenBatch* batch = data.Next();
    if (batch == nullptr) return data.status();
    auto step = trainer.Step(*batch, [&](const ait::TokenBatch& b) {
      const at::Tensor logits = Forward(*engine, *model, ait::Inputs(b));
      return ait::LossSum{ait::SumOfCrossEntropy(logits.to(at::kFloat), ait::Targets(b)),
                          b.token_count()};
    });
    if (!step.ok()) return step.status();
    loss = step->metrics.loss.value_or(loss);
  }
  if (!options["--out"].empty()) AIT_RETURN_IF_ERROR(trainer.Save());
  if (world->rank() == ait::Rank(0)) {
    std::printf("ZeRO-%s, %s, %d ranks: loss %.6f after %lld steps\nmemory of rank 0:\n%s",
                zero.c_str(), options["--precision"].c_str(), world->size().value(), loss,
                static_cast<long long>(steps), engine->Memory().Describe().c_str());
  }
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  ait::Status status;
  for (int i = 1; i < argc && status.ok(); i += 2) {
    if (i + 1 == argc || !options.contains(argv[i])) {
      std::string usage = "usage: zero";
      for (const auto& [name, value] : options)
        usage += " [" + name + " " + (value.empty() ? "DIR" : value) + "]";
      status = ait::InvalidArgumentError(usage);
    } else {
      options[argv[i]] = argv[i + 1];
    }
  }
  if (status.ok()) status = Train();
  if (!status.ok()) std::fprintf(stderr, "zero: %s\n", ait::Message(status).c_str());
  return status.ok() ? 0 : 1;
}
