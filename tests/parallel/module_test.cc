// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/module.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include "ait/optim/adam.h"
#include "ait/optim/norm.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::RunRanks;
using ::testing::ElementsAre;

// An embedding, a LayerNorm, a tied head, a frozen layer.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int seed) {
    embedding = register_module("embedding", torch::nn::Embedding(11, 8));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    hidden = register_module("hidden", torch::nn::Linear(8, 8));
    frozen = register_module("frozen", torch::nn::Linear(8, 8));
    head = register_parameter("head", embedding->weight);
    int k = 0;
    for (at::Tensor& p : parameters()) {
      p.detach().copy_(::ait::testing::Values(p.sizes(), 100 * seed + ++k));
    }
    for (at::Tensor& p : frozen->parameters()) p.set_requires_grad(false);
  }
  at::Tensor Loss(const at::Tensor& tokens) {
    at::Tensor x = norm(embedding(tokens));
    x = frozen(x + torch::tanh(hidden(x)));
    return at::cross_entropy_loss(at::matmul(x, head.t()), (tokens * 3 + 1) % 11, {},
                                  at::Reduction::Sum);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear frozen{nullptr};
  at::Tensor head;
};
TORCH_MODULE(Net);

std::vector<std::string> Names(const NamedTensors& list) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list.size(); ++i) names.push_back(list.name(i));
  return names;
}

TEST(NamedParameters, ListsTheModuleInRegistrationOrder) {
  Net net(1);
  const NamedTensors list = NamedParameters(*net);
  EXPECT_THAT(Names(list),
              ElementsAre("head", "embedding.weight", "norm.weight", "norm.bias", "hidden.weight",
                          "hidden.bias", "frozen.weight", "frozen.bias"));
  EXPECT_TRUE(list.tensor(0).is_same(list.tensor(1)));
}

TEST(NamedBuffers, ListsBuffers) {
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  EXPECT_THAT(Names(NamedBuffers(*net)),
              ElementsAre("1.running_mean", "1.running_var", "1.num_batches_tracked"));
}

// Two ranks with ait's AdamW against one process with libtorch's, on the same global batch.
TEST(NamedParameters, TrainsAsTorchOptimDoesOverAHundredSteps) {
  constexpr int kSteps = 100;
  const auto tokens = [](int step) { return ::ait::testing::Tokens(16, step).remainder(11); };

  Net reference(1);
  std::vector<at::Tensor> trainable;
  for (const at::Tensor& p : reference->parameters()) {
    const bool is_new = std::none_of(trainable.begin(), trainable.end(),
                                     [&](const at::Tensor& q) { return q.is_same(p); });
    if (p.requires_grad() && is_new) trainable.push_back(p);
  }
  torch::optim::AdamW adamw(trainable, torch::optim::AdamWOptions(3e-3).weight_decay(0.1));
  for (int step = 0; step < kSteps; ++step) {
    adamw.zero_grad();
    (reference->Loss(tokens(step)) / 16).backward();
    adamw.step();
  }

  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank().value();
    Net net(1 + rank);
    ASSERT_OK_AND_ASSIGN(auto engine, DataParallel::Create(communicator, NamedParameters(*net)));
    ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 3e-3, .weight_decay = 0.1}}));
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
      ASSERT_OK(engine->Backward(net->Loss(tokens(step).narrow(0, 8 * rank, 8))));
      ASSERT_OK_AND_ASSIGN(const GradientSummary sum, engine->FinishGradients({.count = 8}));
      ASSERT_OK(engine->Update({.gradient_scale = 1.0 / static_cast<double>(sum.count)}));
    }
    const auto expected = reference->named_parameters();
    for (const auto& item : net->named_parameters()) {
      EXPECT_TRUE(torch::allclose(item.value(), expected[item.key()], 1e-4, 1e-5)) << item.key();
    }
  });
}

TEST(NamedParameters, KeepsChannelsLastAndSynchronisesBatchNorm) {
  const auto make = [](int seed) {
    torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)),
                              torch::nn::BatchNorm2d(4));
    int k = 0;
    for (at::Tensor& p : net->parameters()) {
      p.detach().copy_(::ait::testing::Values(p.sizes(), 10 * seed + ++k));
    }
    for (at::Tensor& b : net->buffers()) b.fill_(seed);
    return net;
  };
  const at::Tensor image =
      ::ait::testing::Values({2, 3, 6, 6}, 77).contiguous(at::MemoryFormat::ChannelsLast);
  torch::nn::Sequential reference = make(0);
  (reference->forward(image).pow(2).sum() * 2).backward();

  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    torch::nn::Sequential net = make(communicator->rank().value());
    at::Tensor weight = net->parameters()[0];
    weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    DataParallelOptions options;
    options.buffers = NamedBuffers(*net);
    ASSERT_OK_AND_ASSIGN(auto engine,
                         DataParallel::Create(communicator, NamedParameters(*net), options));
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(weight.grad().strides(), weight.strides());
    EXPECT_EQ(net->buffers()[0][0].item<float>(), 0);
    const void* gradient = weight.grad().data_ptr();
    ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
    ASSERT_OK(engine->Backward(net->forward(image).pow(2).sum()));
    ASSERT_OK(engine->FinishGradients({}));
    EXPECT_EQ(weight.grad().data_ptr(), gradient);
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), reference->parameters()[i].grad(),
                                  1e-4, 1e-5));
    }
  });
}

}  // namespace
}  // namespace ait
