// SPDX-License-Identifier: Apache-2.0
// Trains on the images of 09 from S3, through a cache, and goes on where it was killed.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "ait/base/durable_file.h"
#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/launch/error_file.h"
#include "ait/optim/adam.h"
#include "ait/parallel/module.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "checkpoint.h"
#include "cnn.h"
#include "data.h"

namespace {

constexpr char kUsage[] =
    "usage: stream URL OUT [--cache DIRECTORY] [--steps N] [--save-every N] [--threads N]";

struct Options {
  std::string url;           // of the shards, such as s3://bucket/train/
  std::string out;           // gets the checkpoints
  std::string cache;         // on a local disk, the same for all ranks of a host; or OUT/cache
  std::int64_t steps = 200;  // of the whole run, those before a stop included
  std::int64_t save_every = 20;
  std::int64_t threads = 2;  // that download, read and decode, of each rank
};

ait::StatusOr<Options> Parse(const std::vector<std::string>& words) {
  if (words.size() < 2 || words.size() % 2 != 0) return ait::InvalidArgumentError(kUsage);
  Options options{.url = words[0], .out = words[1], .cache = words[1] + "/cache"};
  for (std::size_t i = 2; i < words.size(); i += 2) {
    const std::int64_t number = std::atoll(words[i + 1].c_str());
    if (words[i] == "--cache") {
      options.cache = words[i + 1];
    } else if (number < 1) {
      return ait::InvalidArgumentError(words[i], " cannot be '", words[i + 1], "'\n", kUsage);
    } else if (words[i] == "--steps") {
      options.steps = number;
    } else if (words[i] == "--save-every") {
      options.save_every = number;
    } else if (words[i] == "--threads") {
      options.threads = number;
    } else {
      return ait::InvalidArgumentError("no option ", words[i], "\n", kUsage);
    }
  }
  return options;
}

ait::Status Train(const Options& options) {
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment(
                                       {.transport = ait::Automatic({.between = ait::Gloo()})}));
  at::set_num_threads(world->threads());
  const bool is_first = world->rank() == ait::Rank(0);

  AIT_RETURN_IF_ERROR(ait::MakeDirectoryDurably(options.out));
  AIT_ASSIGN_OR_RETURN(const std::optional<Checkpoint> saved, FindCheckpoint(options.out));
  AIT_ASSIGN_OR_RETURN(Data data, OpenData(*world, options.url, options.cache, options.threads,
                                           saved ? std::optional(saved->data) : std::nullopt));

  torch::nn::Sequential model = MakeCnn();
  const ait::AdamW optimizer({.learning_rate = 2e-3});
  AIT_ASSIGN_OR_RETURN(
      auto engine, ait::DataParallel::Create(world->communicator(), ait::NamedParameters(*model)));
  ait::Trainer trainer(*engine, optimizer,
                       {.total_steps = options.steps,
                        .directory = options.out,
                        .progress = ait::ProgressTo(STDERR_FILENO),
                        .data_wait = [&data] { return data.loader.TakeWait().wait; }});
  if (saved) {
    AIT_RETURN_IF_ERROR(LoadCheckpoint(options.out, *saved, *engine, optimizer, trainer));
    if (is_first) std::printf("goes on after step %lld\n", static_cast<long long>(trainer.step()));
  }
  std::vector<Delivered> delivered;  // since the last checkpoint
  while (!trainer.done()) {
    const ait::DataBatch* batch = data.loader.Next();
    if (batch == nullptr) return data.loader.status();
    const auto step = trainer.Step(*batch, [&](const ait::DataBatch& b) {
      const at::Tensor labels = ait::TensorOver(*b.Find("label"));
      const at::Tensor logits = model->forward(ait::TensorOver(*b.Find("image")));
      return ait::LossSum{ait::SumOfCrossEntropy(logits, labels), labels.numel()};
    });
    if (!step.ok()) return step.status();
    for (std::size_t i = 0; i < batch->samples.size(); ++i) {
      const ait::PlannedSample& planned = batch->planned[i];
      delivered.push_back(
          {planned.epoch * data.plan->epoch_size(0) + planned.position, batch->samples[i].id});
    }
    if (trainer.done() || trainer.step() % options.save_every == 0) {
      AIT_RETURN_IF_ERROR(
          SaveCheckpoint(options.out, *engine, optimizer, trainer, data.loader.state(), delivered));
      delivered.clear();
    }
  }
  if (is_first) {
    std::printf("%d ranks: %lld steps, data from %s\n%s\n", world->size().value(),
                static_cast<long long>(trainer.step()), data.cache->name().c_str(),
                ToString(data.loader.statistics()).c_str());
  }
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = Parse({argv + 1, argv + argc});
  const ait::Status status = options.ok() ? Train(*options) : options.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "stream: %s\n", ait::Message(status).c_str());
  ait::WriteErrorFile(status).IgnoreError();  // for torchrun's report
  return 1;
}
