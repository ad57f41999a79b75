// SPDX-License-Identifier: Apache-2.0
// `Checkpoint` in a process whose autograd runs on an engine of another, as Python's does.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ait/activation/checkpoint.h"
#include "ait/activation/keep.h"
#include "ait/activation/saved_tensors.h"
#include "ait/base/throw_on_error.h"
#include "ait/tensor/autocast.h"

namespace ait {
namespace {

class ForeignEngine final : public torch::autograd::Engine {
 public:
  static torch::autograd::Engine& Instance() {
    static auto* const engine = new ForeignEngine;
    return *engine;
  }
};
const bool installed = [] {
  torch::autograd::set_default_engine_stub(&ForeignEngine::Instance);
  return true;
}();

struct Block {
  at::Tensor up = (at::randn({32, 16}) / 4).set_requires_grad(true);
  at::Tensor down = (at::randn({16, 32}) / 4).set_requires_grad(true);
  at::Tensor operator()(const at::Tensor& x) const {
    return x + at::dropout(at::linear(at::gelu(at::linear(x, up)), down), 0.3, true);
  }
  std::vector<at::Tensor> TakeGradients() const {
    const std::vector<at::Tensor> gradients = {up.grad(), down.grad()};
    for (at::Tensor p : {up, down}) p.mutable_grad() = at::Tensor();
    return gradients;
  }
};

at::Tensor Input() { return at::linspace(-1, 1, 96).view({6, 16}).clone(); }

/// Gradients of `blocks` and the loss of `forward`.
template <typename Forward>
std::vector<at::Tensor> Train(const std::vector<Block>& blocks, const Forward& forward) {
  at::manual_seed(4);
  const at::Tensor loss = forward();
  const at::Tensor random = at::rand({3});
  loss.backward();
  std::vector<at::Tensor> outcome = {loss.detach(), random};
  for (const Block& block : blocks) {
    for (const at::Tensor& gradient : block.TakeGradients()) outcome.push_back(gradient);
  }
  return outcome;
}

void ExpectSame(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

template <typename Function>
Status StatusOf(const Function& function) {
  try {
    function();
  } catch (const StatusException& error) {
    return error.status();
  }
  return OkStatus();
}

bool Has(const Status& status, const std::string& part) {
  return std::string(status.message()).find(part) != std::string::npos;
}

TEST(CheckpointFallback, SavedTensorsAreNotToBeHad) {
  ASSERT_TRUE(installed);
  EXPECT_FALSE(SavedTensorScope::Available().ok());
}

TEST(CheckpointFallback, IsThePlainRunBitForBitThoughNoInputRequiresGrad) {
  const std::vector<Block> blocks(3);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto forward = [&](bool checkpointed) {
      return Train(blocks, [&] {
        const Autocast autocast(dtype);
        at::Tensor x = Input();
        for (const Block& block : blocks) x = checkpointed ? Checkpoint(block, x) : block(x);
        return x.square().sum();
      });
    };
    ExpectSame(forward(false), forward(true));
  }
}

TEST(CheckpointFallback, TakesStructuresNestsAndMayBeAskedAgain) {
  const std::vector<Block> blocks(2);
  using Results = std::tuple<at::Tensor, std::map<std::string, at::Tensor>, at::Tensor, int>;
  const auto function = [&](const std::vector<at::Tensor>& in, bool nests) -> Results {
    const at::Tensor y =
        Keep([&] { return nests ? Checkpoint(blocks[0], in[0]) : blocks[0](in[0]); });
    return {y * in[1], {{"tokens", in[2] + 1}, {"y", y.sin()}}, y.detach(), 7};
  };
  const auto forward = [&](bool checkpointed) {
    return Train(blocks, [&] {
      const at::Tensor x = blocks[1](Input());
      const std::vector<at::Tensor> in = {x, x.exp(), at::arange(3)};
      const auto [product, named, detached, number] =
          checkpointed ? Checkpoint(function, in, true) : function(in, false);
      EXPECT_EQ(number, 7);
      EXPECT_FALSE(detached.requires_grad());
      EXPECT_EQ(named.at("tokens").scalar_type(), at::kLong);
      const at::Tensor loss = (product + named.at("y") * detached).sum();
      loss.backward({}, true);
      return loss;
    });
  };
  ExpectSame(forward(false), forward(true));
}

TEST(CheckpointFallback, HooksOfAParameterFireOnce) {
  const Block block;
  int fired = 0;
  struct Count final : torch::autograd::PostAccumulateGradHook {
    explicit Count(int& count) : count(count) {}
    void operator()(const at::Tensor&) override { ++count; }
    int& count;
  };
  torch::autograd::impl::set_post_acc_grad_hooks(block.up, std::make_unique<Count>(fired));
  at::Tensor x = Input();
  for (int i = 0; i < 3; ++i) x = Checkpoint(block, x);  // the same weights in all
  x.sum().backward();
  EXPECT_EQ(fired, 1);
}

TEST(CheckpointFallback, BackwardOnAnotherThreadAndAfterAnException) {
  const std::vector<Block> blocks(1);
  const auto plain = Train(blocks, [&] { return blocks[0](Input()).sum(); });
  at::manual_seed(4);
  int calls = 0;
  const at::Tensor loss = Checkpoint(
      [&](const at::Tensor& x) {
        if (++calls == 2) throw std::runtime_error("in the middle");
        return blocks[0](x).sum();
      },
      Input());
  EXPECT_THROW(loss.backward({}, true), std::runtime_error);
  EXPECT_FALSE(IsRecomputing());
  std::thread([&] { loss.backward(); }).join();
  EXPECT_TRUE(at::equal(plain[2], blocks[0].up.grad()));
  EXPECT_THROW(loss.backward(), std::exception) << "a second time without retain_graph";
}

TEST(CheckpointFallback, RefusesWhatAFunctionCannotDo) {
  const Block block;
  const at::Tensor x = Input().set_requires_grad(true), before = x.exp();
  Status status = StatusOf([&] {
    torch::autograd::grad({Checkpoint(block, before).sum()}, {x}, {}, true, /*create_graph=*/true);
  });
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(Has(status, "create_graph")) << status;

  status = StatusOf([&] { Checkpoint([&] { return block(before); }); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Has(status, "ExpBackward0) and is none of its inputs")) << status;

  status = StatusOf([&] { Checkpoint([&](const at::Tensor& y) { block(y); }, x); });
  EXPECT_TRUE(Has(status, "returns nothing")) << status;

  at::Tensor y = Checkpoint({.name = "mlp"}, block, x).sum();
  block.down.detach().add_(1);
  status = StatusOf([&] { y.backward(); });
  EXPECT_TRUE(Has(status, "segment mlp: a parameter, Float [16, 32]")) << status;

  int calls = 0;
  y = Checkpoint(
          {.name = "odd"},
          [&](const at::Tensor& in) { return ++calls == 1 ? in.sum(0) : in.sum(1); }, x)
          .sum();
  status = StatusOf([&] { y.backward(); });
  EXPECT_TRUE(Has(status, "segment odd: result 0 was Float [16]")) << status;
}

}  // namespace
}  // namespace ait
