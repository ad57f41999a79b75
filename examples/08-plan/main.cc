// SPDX-License-Identifier: Apache-2.0
// The GPT of 03-gpt within a budget of memory: predicted before it runs, planned after one measured
// step, and held to the prediction at the end.
//   ait run -n 2 -- plan --zero 2 --activations 0.5
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "ait/activation/planner.h"
#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/data/token_dataset.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/memory_setup.h"
#include "ait/parallel/module.h"
#include "ait/parallel/unit.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "gpt.h"

namespace {

// What may be said on the command line, and what holds if it is not.
std::map<std::string, std::string> options = {{"--zero", "2"},
                                              {"--activations", "0.5"},
                                              {"--steps", "10"},
                                              {"--size", "quickstart"},
                                              {"--data", "build/data/gcide"}};

/// Each block is a unit of ZeRO-3 inside of a segment of the plan: backward gathers it again, and
/// computes it again if the plan says so.
at::Tensor Forward(ait::DataParallel& engine, ait::ActivationPlan& plan, GptImpl& model,
                   const at::Tensor& tokens) {
  at::Tensor x = model.tok(tokens) + model.pos->weight.narrow(0, 0, tokens.size(1));
  for (std::size_t i = 0; i < model.blocks->size(); ++i) {
    const std::string name = "blocks." + std::to_string(i);
    const auto block = [&engine, name, part = model.blocks[i]->as<BlockImpl>()](at::Tensor in) {
      return engine.Unit(name, [&] { return part->forward(in); });
    };
    x = plan.Run(name, block, x);
  }
  return model.head(model.ln(x));
}

ait::Status Train() {
  const auto config = GptConfig::Named(options["--size"]);
  if (!config) return ait::InvalidArgumentError("no size ", options["--size"]);
  const std::string& zero = options["--zero"];
  if (zero.size() != 1 || zero < "0" || zero > "3")
    return ait::InvalidArgumentError("--zero is ", zero, "; it must be 0, 1, 2 or 3");
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
  const ait::DataParallelOptions layout{.zero_stage = static_cast<ait::ZeroStage>(zero[0] - '0'),
                                        .units = ait::UnitsUnder("blocks", parameters)};
  // Before there is an engine: what its buffers will take.
  AIT_ASSIGN_OR_RETURN(ait::TrainingSetup setup, ait::SetupOf(parameters, layout, world->size()));
  setup.waste = 0;  // live bytes, not those that malloc keeps

  AIT_ASSIGN_OR_RETURN(auto engine,
                       ait::DataParallel::Create(world->communicator(), parameters, layout));
  ait::Trainer trainer(*engine, ait::AdamW{{.learning_rate = 1e-3}}, {.clip_norm = 1.0});
  ait::ActivationPlan plan;
  const auto step = [&]() -> ait::Status {
    const ait::TokenBatch* batch = data.Next();
    if (batch == nullptr) return data.status();
    return trainer
        .Step(*batch,
              [&](const ait::TokenBatch& b) {
                const at::Tensor logits = Forward(*engine, plan, *model, ait::Inputs(b));
                return ait::LossSum{ait::SumOfCrossEntropy(logits.to(at::kFloat), ait::Targets(b)),
                                    b.token_count()};
              })
        .status();
  };
  ait::MemoryPlanner planner(plan);
  AIT_RETURN_IF_ERROR(step());  // gradients and states are there from now on
  AIT_ASSIGN_OR_RETURN(const ait::StepProfile profile, planner.Measure(step, config->batch));
  const double budget = std::atof(options["--activations"].c_str()) * double(profile.peak_bytes);
  AIT_RETURN_IF_ERROR(planner.Choose(ait::Bytes(std::int64_t(budget))).status());
  setup.segments = profile.segments;
  setup.plan = planner.ActionsFor(profile);
  AIT_ASSIGN_OR_RETURN(const ait::MemoryPrediction prediction, ait::PredictMemory(setup));

  for (int i = 2; i < std::atoi(options["--steps"].c_str()); ++i) AIT_RETURN_IF_ERROR(step());
  AIT_ASSIGN_OR_RETURN(const ait::PlanOutcome outcome, planner.Check(step));
  if (world->rank() != ait::Rank(0)) return ait::OkStatus();
  ait::MemoryParts measured = ait::PartsOf(engine->Memory());
  measured.activations = outcome.measured_bytes - prediction.rank.working;
  measured.working = prediction.rank.working;  // only their sum is measured
  std::printf("%sThe rank as a whole:\n%s", outcome.Describe().c_str(),
              prediction.DescribeBeside(measured).c_str());
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  ait::Status status;
  for (int i = 1; i < argc && status.ok(); i += 2) {
    if (i + 1 == argc || !options.contains(argv[i])) {
      status = ait::InvalidArgumentError(
          "usage: plan [--zero N] [--activations PART] [--steps N] [--size NAME] [--data DIR]");
    } else {
      options[argv[i]] = argv[i + 1];
    }
  }
  if (status.ok()) status = Train();
  if (!status.ok()) std::fprintf(stderr, "plan: %s\n", ait::Message(status).c_str());
  return status.ok() ? 0 : 1;
}
