// SPDX-License-Identifier: Apache-2.0
#include "parallel/tiny_model.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include <random>
#include <thread>

namespace ait::testing {

at::Tensor Values(at::IntArrayRef sizes, int seed, double scale) {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(at::kFloat));
  std::mt19937 random(static_cast<unsigned>(seed));
  float* values = tensor.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>((static_cast<double>(random()) / 0x80000000p0 - 1) * scale);
  }
  return tensor;
}

at::Tensor Leaf(at::IntArrayRef sizes, int seed, double scale) {
  return Values(sizes, seed, scale).set_requires_grad(true);
}

TinyModel::TinyModel(int seed)
    : embedding(Leaf({kVocabulary, kWidth}, seed * 100 + 1)),
      norm_weight(Leaf({kWidth}, seed * 100 + 2)),
      norm_bias(Leaf({kWidth}, seed * 100 + 3)),
      up(Leaf({2 * kWidth, kWidth}, seed * 100 + 4)),
      up_bias(Leaf({2 * kWidth}, seed * 100 + 5)),
      down(Leaf({kWidth, 2 * kWidth}, seed * 100 + 6)),
      down_bias(Leaf({kWidth}, seed * 100 + 7)),
      frozen(Values({kWidth, kWidth}, seed * 100 + 8)),
      unused(Leaf({5, 3}, seed * 100 + 9)),
      scale(Leaf({}, seed * 100 + 10, 1.0)) {}

at::Tensor TinyModel::Loss(const at::Tensor& tokens, const at::Tensor& targets) const {
  at::Tensor x = at::embedding(embedding, tokens);
  for (int layer = 0; layer < 2; ++layer) {  // the same weights twice
    const at::Tensor y = at::layer_norm(x, {kWidth}, norm_weight, norm_bias);
    x = x.add(at::linear(at::tanh(at::linear(y, up, up_bias)), down, down_bias).mul(scale));
  }
  x = at::linear(x, frozen);
  return at::cross_entropy_loss(at::linear(x, embedding), targets, {}, at::Reduction::Sum);
}

NamedTensors TinyModel::Parameters() const {
  NamedTensors list;
  list.Add("embedding.weight", embedding);
  list.Add("norm.weight", norm_weight);
  list.Add("norm.bias", norm_bias);
  list.Add("up.weight", up);
  list.Add("up.bias", up_bias);
  list.Add("down.weight", down);
  list.Add("down.bias", down_bias);
  list.Add("frozen.weight", frozen);
  list.Add("unused.weight", unused);
  list.Add("scale", scale);
  list.Add("head.weight", embedding);
  return list;
}

at::Tensor Tokens(std::int64_t count, int seed) {
  at::Tensor tokens = at::empty({count}, at::TensorOptions(at::kLong));
  std::mt19937 random(static_cast<unsigned>(seed));
  std::int64_t* values = tokens.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) values[i] = random() % TinyModel::kVocabulary;
  return tokens;
}

std::vector<float> Flatten(const NamedTensors& tensors) {
  std::vector<float> values;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = tensors.tensor(i).detach().contiguous();
    const float* data = tensor.const_data_ptr<float>();
    values.insert(values.end(), data, data + tensor.numel());
  }
  return values;
}

void RunRanks(int ranks, const std::function<void(std::shared_ptr<Communicator>)>& rank_main,
              std::chrono::milliseconds timeout) {
  std::vector<std::shared_ptr<Communicator>> group =
      MakeThreadGroup(WorldSize(ranks), {.timeout = timeout});
  std::vector<std::jthread> threads;
  for (std::shared_ptr<Communicator>& communicator : group) {
    threads.emplace_back([&rank_main, mine = std::move(communicator)] { rank_main(mine); });
  }
}

std::shared_ptr<Communicator> Alone() { return MakeThreadGroup(WorldSize(1)).front(); }

}  // namespace ait::testing
