// SPDX-License-Identifier: Apache-2.0
// Trains the MLP of 01-one-process on any number of ranks; each reads its share of every batch.
//   ait run -n 2 -- data_parallel [EPOCHS] [FOLDER]
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/data/order.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "fashion_mnist.h"

namespace {

constexpr std::int64_t kBatch = 128;  // of all ranks together

torch::nn::Sequential MakeMlp() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(784, 256), torch::nn::ReLU(),
                               torch::nn::Linear(256, 10));
}

double Accuracy(torch::nn::Sequential& model, const FashionMnist& data) {
  torch::NoGradGuard no_grad;
  return (model->forward(data.images).argmax(1) == data.labels)
      .to(at::kFloat)
      .mean()
      .item<double>();
}

ait::Status Run(std::int64_t epochs, const std::string& folder) {
  AIT_ASSIGN_OR_RETURN(const FashionMnist train, FashionMnist::Read(folder, "train"));
  AIT_ASSIGN_OR_RETURN(const FashionMnist test, FashionMnist::Read(folder, "t10k"));
  torch::nn::Sequential model = MakeMlp();

  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment(
                                       {.transport = ait::Automatic({.between = ait::Gloo()})}));
  if (world->asked_to_describe()) std::fputs(world->Describe().c_str(), stderr);
  AIT_ASSIGN_OR_RETURN(
      auto engine, ait::DataParallel::Create(world->communicator(), ait::NamedParameters(*model)));
  const std::int64_t images = train.images.size(0), steps = images / kBatch;
  ait::Trainer trainer(*engine, ait::AdamW{{.learning_rate = 1e-3}},
                       {.schedule = ait::LinearSchedule{.total_steps = epochs * steps},
                        .total_steps = epochs * steps,
                        .progress = ait::ProgressTo(STDERR_FILENO),
                        .steps_per_epoch = static_cast<double>(steps)});
  while (!trainer.done()) {
    // The global batch is the same for any number of ranks; each takes every size-th image of it.
    const std::int64_t epoch = trainer.step() / steps, first = trainer.step() % steps * kBatch;
    const ait::Permutation order(images, /*seed=*/1, epoch);
    std::vector<std::int64_t> mine;
    for (std::int64_t i = world->rank().value(); i < kBatch; i += world->size().value()) {
      mine.push_back(order(first + i));
    }
    const at::Tensor picked = ait::TensorOver(ait::View(mine));

    auto step = trainer.Step(picked, [&](const at::Tensor& index) {
      const at::Tensor logits = model->forward(train.images.index_select(0, index));
      const at::Tensor labels = train.labels.index_select(0, index);
      return ait::LossSum{at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum),
                          labels.numel()};
    });
    if (!step.ok()) return step.status();
  }
  if (world->rank() == ait::Rank(0)) {
    std::printf("%d ranks: test accuracy %.2f %%\n", world->size().value(),
                100 * Accuracy(model, test));
  }
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const ait::Status status = Run(argc > 1 ? std::atoi(argv[1]) : 3,
                                 argc > 2 ? argv[2] : "/usr/share/datasets/fashion-mnist");
  if (!status.ok()) std::fprintf(stderr, "%s\n", ait::Message(status).c_str());
  return status.ok() ? 0 : 1;
}
