// SPDX-License-Identifier: Apache-2.0
// A GPT on real text: `gpt train` on any number of ranks, then `gpt generate` from the weights.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "ait/checkpoint/weights.h"
#include "ait/comm/world.h"
#include "ait/data/loader/io_experiment.h"
#include "ait/data/token_dataset.h"
#include "ait/launch/error_file.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/autocast.h"
#include "ait/tensor/torch.h"
#include "generate.h"
#include "gpt.h"
#include "options.h"

namespace {

/// Set by Ctrl-C. The handler touches nothing else, so it may run at any time, also while the
/// weights are saved.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);
void Interrupt(int) { interrupted = true; }

constexpr int kBatchesAhead = 32;
// Of so many batches of one rank, with their sample ids.
ait::Bytes BatchBytes(const GptConfig& config, std::int64_t batches) {
  return ait::Bytes(batches * config.batch * (config.context + 2) *
                    std::int64_t{sizeof(std::int64_t)});
}

/// The number of rank 0, on all ranks.
ait::StatusOr<double> OfRankZero(ait::Communicator& communicator, double number) {
  double numbers[] = {number};
  AIT_RETURN_IF_ERROR(communicator.Broadcast(ait::View(numbers), ait::Rank(0)).Wait());
  return numbers[0];
}

ait::Status Train(const Options& options) {
  const GptConfig& config = options.config;
  AIT_ASSIGN_OR_RETURN(
      auto world, ait::World::FromEnvironment({.transport = TransportNamed(options.transport)}));
  if (world->asked_to_describe()) std::fputs(world->Describe().c_str(), stderr);
  at::set_num_threads(world->threads());
  ait::Communicator& all = *world->communicator();
  AIT_ASSIGN_OR_RETURN(
      auto data,
      ait::TokenDataset::Open(options.data, {.sequence_length = config.context,
                                             .global_batch_size = config.batch * all.size().value(),
                                             .shard = world->shard(),
                                             .seed = options.seed,
                                             .epochs = ait::kUnlimitedEpochs,
                                             .prefetch = BatchBytes(config, kBatchesAhead)}));
  AIT_RETURN_IF_ERROR(data.AgreeOver(all));
  AIT_RETURN_IF_ERROR(data.CheckVocabulary(config.vocabulary));

  torch::manual_seed(options.seed);
  Gpt model(config);
  AIT_ASSIGN_OR_RETURN(
      auto engine, ait::DataParallel::Create(world->communicator(), ait::NamedParameters(*model),
                                             {.compression = options.compression}));
  const ait::AdamW optimizer(
      {.learning_rate = options.learning_rate, .beta2 = 0.95, .weight_decay = 0.1},
      {ait::NoDecayForNormsAndBiases()});
  double progress =
      0;  // warm-up over 20 steps, then half a cosine over the time or steps asked for
  const auto schedule = [&progress](std::int64_t step) {
    const double warmup = std::min(1.0, static_cast<double>(step + 1) / 20);
    return warmup * (0.05 + 0.475 * (1 + std::cos(M_PI * std::min(1.0, progress))));
  };
  const ait::Time begin = ait::SystemClock().now();
  Summary summary;
  const auto used = [&] {
    if (options.steps > 0) return summary.steps() / static_cast<double>(options.steps);
    return std::chrono::duration<double>(ait::SystemClock().now() - begin) / options.length;
  };
  ait::Trainer trainer(*engine, optimizer,
                       {.clip_norm = 1.0,
                        .schedule = schedule,
                        .directory = options.out,
                        .progress = ait::ProgressTo(STDERR_FILENO),
                        .steps_per_epoch = static_cast<double>(data.sample_count()) /
                                           static_cast<double>(config.batch * all.size().value()),
                        .progress_fraction = used,
                        .data_wait = [&data] { return data.TakeWait().wait; }});
  ait::IoExperiment<ait::TokenBatch> experiment({.ahead = kBatchesAhead},
                                                [&data] { return data.Next(); });
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, Interrupt);

  while (!trainer.done()) {
    AIT_ASSIGN_OR_RETURN(progress, OfRankZero(all, used()));
    if (progress >= 1) break;
    if (interrupted) trainer.RequestStop();
    const ait::TokenBatch* batch = options.io_experiment ? experiment.Next() : data.Next();
    if (batch == nullptr) return data.status();
    auto step = trainer.Step(*batch, [&](const ait::TokenBatch& b) {
      const ait::Autocast autocast(options.bf16 ? ait::DType::kBFloat16 : ait::DType::kFloat32);
      const at::Tensor logits = model->forward(ait::Inputs(b));
      return ait::LossSum{ait::SumOfCrossEntropy(logits, ait::Targets(b)), b.token_count()};
    });
    if (!step.ok()) return step.status();
    summary.Add(step->metrics, batch->global_rows * batch->sequence_length);
  }
  AIT_RETURN_IF_ERROR(trainer.Save());
  if (all.rank() == ait::Rank(0)) {
    summary.Print(options.out);
    if (options.io_experiment) std::printf("data: %s\n", ToText(experiment.report()).c_str());
  }
  return ait::OkStatus();
}

ait::Status Generate(const Options& options) {
  Gpt model(options.config);
  AIT_RETURN_IF_ERROR(ait::LoadWeights(options.weights, ait::NamedParameters(*model)).status());
  std::printf("%s\n", Continue(*model, options).c_str());
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = Options::Parse(argc, argv);
  const ait::Status status = !options.ok()              ? options.status()
                             : options->mode == "train" ? Train(*options)
                                                        : Generate(*options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpt: %s\n", ait::Message(status).c_str());
  ait::WriteErrorFile(status).IgnoreError();  // for torchrun's report
  return 1;
}
