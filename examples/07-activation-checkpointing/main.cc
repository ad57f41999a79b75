// SPDX-License-Identifier: Apache-2.0
// A deep GPT that does not fit into its memory, then does: trained as it is, with every block
// recomputed in backward, and with the matrix products of the blocks kept.
#include <ATen/Parallel.h>

#include <cstdio>
#include <map>
#include <string>

#include "ait/activation/checkpoint.h"
#include "ait/activation/keep.h"
#include "ait/comm/world.h"
#include "ait/data/token_dataset.h"
#include "ait/memory/heap.h"
#include "ait/memory/limit.h"
#include "ait/memory/statistics.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/cpu_allocator.h"
#include "ait/tensor/torch.h"
#include "gpt.h"

namespace {

// What may be said on the command line, and what holds if it is not.
std::map<std::string, std::string> options = {
    {"--layers", "24"}, {"--mib", "80"}, {"--steps", "5"}, {"--data", "build/data/gcide"}};

enum class Blocks { kPlain, kRecomputed, kRecomputedButProducts };

at::Tensor Forward(GptImpl& model, const at::Tensor& tokens, Blocks blocks,
                   const std::shared_ptr<ait::CheckpointCounters>& counters) {
  at::Tensor x = model.tok(tokens) + model.pos->weight.narrow(0, 0, tokens.size(1));
  for (std::size_t i = 0; i < model.blocks->size(); ++i) {
    auto* const block = model.blocks[i]->as<BlockImpl>();
    ait::CheckpointOptions checkpoint{.name = "blocks." + std::to_string(i), .counters = counters};
    if (blocks == Blocks::kRecomputedButProducts) checkpoint.keep = ait::MatrixProducts();
    x = blocks == Blocks::kPlain ? block->forward(x)
                                 : ait::Checkpoint(checkpoint, &BlockImpl::forward, block, x);
  }
  return model.head(model.ln(x));
}

/// Trains from scratch and prints how that went. Memory that is not there is no error here.
ait::Status Train(const std::shared_ptr<ait::StatisticsResource>& memory, const char* name,
                  Blocks blocks) {
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment());
  at::set_num_threads(world->threads());
  const GptConfig config{.layers = std::stoll(options["--layers"]), .width = 64, .heads = 4};
  AIT_ASSIGN_OR_RETURN(
      auto data, ait::TokenDataset::Open(options["--data"],
                                         {.sequence_length = config.context,
                                          .global_batch_size = config.batch * world->size().value(),
                                          .shard = world->shard(),
                                          .seed = 1,
                                          .epochs = ait::kUnlimitedEpochs}));
  const ait::StatisticsScope scope(memory);
  torch::manual_seed(1);
  Gpt model(config);
  AIT_ASSIGN_OR_RETURN(
      auto engine, ait::DataParallel::Create(world->communicator(), ait::NamedParameters(*model)));
  ait::Trainer trainer(*engine, ait::AdamW{{.learning_rate = 1e-3}},
                       {.total_steps = std::stoll(options["--steps"])});
  const auto counters = std::make_shared<ait::CheckpointCounters>();
  double loss = 0;
  while (!trainer.done()) {
    const ait::TokenBatch* batch = data.Next();
    if (batch == nullptr) return data.status();
    auto step = trainer.Step(*batch, [&](const ait::TokenBatch& b) {
      const at::Tensor logits = Forward(*model, ait::Inputs(b), blocks, counters);
      return ait::LossSum{ait::SumOfCrossEntropy(logits, ait::Targets(b)), b.token_count()};
    });
    if (step.status().code() == ait::StatusCode::kResourceExhausted) {
      std::printf("%s: does not fit\n  %s\n", name, ait::Message(step.status()).c_str());
      return ait::OkStatus();
    }
    if (!step.ok()) return step.status();
    loss = step->metrics.loss.value_or(loss);
  }
  std::printf(
      "%s: loss %.6f, peak %.1f MiB, %lld blocks recomputed, %.1f MiB kept a step\n", name, loss,
      static_cast<double>(scope.statistics().peak_bytes) / (1 << 20),
      static_cast<long long>(counters->recomputes),
      static_cast<double>(counters->kept_bytes) / (1 << 20) / static_cast<double>(trainer.step()));
  return ait::OkStatus();
}

ait::Status TrainAllWays() {
  // Everything that libtorch allocates for the CPU comes out of a limited number of bytes.
  AIT_ASSIGN_OR_RETURN(
      auto limited, ait::LimitResource::Create(ait::HeapResource::Create(),
                                               {.limit = ait::MiB(std::stoll(options["--mib"]))}));
  const auto memory = ait::StatisticsResource::Create(limited);
  AIT_ASSIGN_OR_RETURN(const auto scope, ait::CpuAllocatorScope::Create(memory));
  AIT_RETURN_IF_ERROR(Train(memory, "plain", Blocks::kPlain));
  AIT_RETURN_IF_ERROR(Train(memory, "recomputed", Blocks::kRecomputed));
  return Train(memory, "recomputed but products", Blocks::kRecomputedButProducts);
}

}  // namespace

int main(int argc, char** argv) {
  ait::Status status;
  for (int i = 1; i < argc && status.ok(); i += 2) {
    if (i + 1 == argc || !options.contains(argv[i])) {
      status = ait::InvalidArgumentError(
          "usage: activation-checkpointing [--layers 24] [--mib 80] [--steps 5] [--data DIR]");
    } else {
      options[argv[i]] = argv[i + 1];
    }
  }
  if (status.ok()) status = TrainAllWays();
  if (!status.ok()) std::fprintf(stderr, "%s\n", ait::Message(status).c_str());
  return status.ok() ? 0 : 1;
}
