// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/data/format/formats.h"
#include "ait/data/loader/data_loader.h"
#include "ait/data/loader/io_experiment.h"
#include "ait/data/plan/data_plan.h"
#include "ait/data/plan/plan_agreement.h"
#include "ait/data/storage/local_storage.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "cnn.h"
#include "images.h"

namespace {

constexpr std::int64_t kBatch = 128;  // of all ranks together

struct Data {
  std::shared_ptr<const ait::DataPlan> plan;
  ait::DataLoader loader;
};

ait::StatusOr<Data> Open(ait::World& world, const std::string& path, std::int64_t epochs,
                         std::int64_t threads, Use use) {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<const ait::Storage> storage, ait::LocalStorage::Create());
  AIT_ASSIGN_OR_RETURN(const auto samples, ait::OpenSamples(std::move(storage), path));
  AIT_ASSIGN_OR_RETURN(
      ait::DataPlan made,
      ait::DataPlan::Create({ait::MakePlanSource(*samples)},
                            {.global_batch_size = kBatch,
                             .seed = 1,
                             .order = use == Use::kTraining ? ait::SampleOrder::kBlockShuffled
                                                            : ait::SampleOrder::kSequential,
                             .epochs = epochs}));
  const auto plan = std::make_shared<const ait::DataPlan>(std::move(made));
  AIT_RETURN_IF_ERROR(ait::AgreeOnPlan(*world.communicator(), *plan, world.shard()));
  AIT_ASSIGN_OR_RETURN(
      ait::DataLoader loader,
      ait::DataLoader::Create(plan, {samples},
                              {.shard = world.shard(),
                               .seed = 1,
                               .transform = Decode(use),
                               .collate = ait::Stack({.required = {"image", "label"}}),
                               .threads = static_cast<int>(threads)}));
  return Data{plan, std::move(loader)};
}

// Right answers and images of this rank, summed over all.
ait::StatusOr<double> Accuracy(ait::World& world, torch::nn::Sequential& model, Data data) {
  torch::NoGradGuard no_grad;
  double counts[] = {0, 0};
  while (const ait::DataBatch* batch = data.loader.Next()) {
    if (batch->samples.empty()) continue;  // the last batch may be too small for all ranks
    const at::Tensor labels = ait::TensorOver(*batch->Find("label"));
    const at::Tensor guesses = model->forward(ait::TensorOver(*batch->Find("image"))).argmax(1);
    counts[0] += (guesses == labels).sum().item<double>();
    counts[1] += static_cast<double>(labels.numel());
  }
  AIT_RETURN_IF_ERROR(data.loader.status());
  AIT_RETURN_IF_ERROR(
      world.communicator()->AllReduce(ait::View(counts), ait::ReduceOp::kSum).Wait());
  return counts[0] / counts[1];
}

}  // namespace

ait::Status TrainOnImages(const TrainOptions& options) {
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment(
                                       {.transport = ait::Automatic({.between = ait::Gloo()})}));
  at::set_num_threads(world->threads());
  AIT_ASSIGN_OR_RETURN(Data data, Open(*world, options.data + "/train", options.epochs,
                                       options.threads, Use::kTraining));
  torch::nn::Sequential model = MakeCnn();
  AIT_ASSIGN_OR_RETURN(
      auto engine, ait::DataParallel::Create(world->communicator(), ait::NamedParameters(*model)));
  const std::int64_t steps_per_epoch = (data.plan->epoch_size(0) + kBatch - 1) / kBatch;
  ait::Trainer trainer(
      *engine, ait::AdamW{{.learning_rate = 2e-3}},
      {.total_steps = options.steps > 0 ? options.steps : options.epochs * steps_per_epoch,
       .directory = options.out,
       .progress = ait::ProgressTo(STDERR_FILENO),
       .steps_per_epoch = static_cast<double>(steps_per_epoch),
       .data_wait = [&] { return data.loader.TakeWait().wait; }});
  ait::IoExperiment<ait::DataBatch> experiment(
      {.ahead = ait::LoaderOptions().max_ahead}, [&] { return data.loader.Next(); },
      ait::CopyBatch);
  while (!trainer.done()) {
    const ait::DataBatch* batch = options.io_experiment ? experiment.Next() : data.loader.Next();
    if (batch == nullptr) break;
    const auto step = trainer.Step(*batch, [&](const ait::DataBatch& b) {
      const at::Tensor labels = ait::TensorOver(*b.Find("label"));
      const at::Tensor logits = model->forward(ait::TensorOver(*b.Find("image")));
      return ait::LossSum{ait::SumOfCrossEntropy(logits, labels), labels.numel()};
    });
    if (!step.ok()) return step.status();
  }
  AIT_RETURN_IF_ERROR(data.loader.status());
  AIT_ASSIGN_OR_RETURN(Data test,
                       Open(*world, options.data + "/test", 1, options.threads, Use::kTest));
  AIT_ASSIGN_OR_RETURN(const double accuracy, Accuracy(*world, model, std::move(test)));
  if (world->rank() != ait::Rank(0)) return ait::OkStatus();
  std::printf("%d ranks: test accuracy %.2f %%\n", world->size().value(), 100 * accuracy);
  if (options.io_experiment) {
    const ait::IoFacts facts = ait::FactsOf(data.loader.statistics());
    std::printf("data: %s\n", ToText(experiment.report(), facts).c_str());
  }
  return ait::OkStatus();
}
