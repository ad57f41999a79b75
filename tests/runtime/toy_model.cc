// SPDX-License-Identifier: Apache-2.0
#include "runtime/toy_model.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
// clang-format on

#include <limits>
#include <stdexcept>
#include <thread>

#include "ait/comm/thread_group.h"
#include "ait/parallel/data_parallel.h"

namespace ait::testing {

ToyBatch MakeBatch(int seed, int size) {
  ToyBatch batch;
  for (int i = 0; i < size; ++i) {
    batch.inputs.push_back((7 * seed + 3 * i) % ToyModel::kVocabulary);
    batch.targets.push_back((5 * seed + i * i) % ToyModel::kVocabulary);
  }
  return batch;
}

ToyBatch Join(const ToyBatch& a, const ToyBatch& b) {
  ToyBatch both = a;
  both.inputs.insert(both.inputs.end(), b.inputs.begin(), b.inputs.end());
  both.targets.insert(both.targets.end(), b.targets.begin(), b.targets.end());
  return both;
}

ToyModel::ToyModel()
    : embedding_(at::linspace(-1, 1, kVocabulary * kWidth).sin().view({kVocabulary, kWidth})),
      output_(at::linspace(-2, 3, kVocabulary * kWidth).cos().view({kVocabulary, kWidth})) {
  embedding_.set_requires_grad(true);
  output_.set_requires_grad(true);
}

LossSum ToyModel::Loss(const ToyBatch& batch, Fault fault) const {
  if (fault == Fault::kThrow) throw std::runtime_error("the model is unwell");
  const auto count = static_cast<std::int64_t>(batch.inputs.size());
  // Clones: backward reads the indices when this function is over.
  std::vector<std::int64_t> inputs = batch.inputs, targets = batch.targets;
  const at::Tensor hidden = at::embedding(embedding_, TensorOver(View(inputs)).clone());
  if (fault == Fault::kVector) return {.sum = hidden, .count = count};
  const at::Tensor logits = at::linear(hidden, output_);
  at::Tensor sum =
      at::cross_entropy_loss(logits, TensorOver(View(targets)).clone(), {}, at::Reduction::Sum);
  if (fault == Fault::kNanLoss) sum = sum.mul(std::numeric_limits<double>::quiet_NaN());
  // The root of 0: the value is 0, the slope of it infinite, and that times 0 not a number.
  if (fault == Fault::kNanGradient) sum = sum.add(output_.mul(0).sum().sqrt());
  if (fault == Fault::kNoGraph) sum = sum.detach();
  return {.sum = sum, .count = count};
}

NamedTensors ToyModel::Parameters() const {
  NamedTensors parameters;
  parameters.Add("embedding", embedding_);
  parameters.Add("output", output_);
  return parameters;
}

std::vector<float> ToyModel::Values() const {
  std::vector<float> values;
  for (const at::Tensor& tensor : {embedding_, output_}) {
    const at::Tensor flat = tensor.detach().contiguous();
    const auto* begin = flat.const_data_ptr<float>();
    values.insert(values.end(), begin, begin + flat.numel());
  }
  return values;
}

ToyRank::ToyRank(std::shared_ptr<Communicator> communicator, DataParallelOptions options)
    : engine(DataParallel::Create(std::move(communicator), model.Parameters(), std::move(options))
                 .value()) {}

void RunRanks(int size, const std::function<void(ToyRank&)>& body,
              const DataParallelOptions& options,
              const std::function<void(Communicator&, DataParallelOptions&)>& adjust) {
  const auto group = MakeThreadGroup(WorldSize(size), {.timeout = std::chrono::seconds(20)});
  std::vector<std::thread> threads;
  for (const auto& communicator : group) {
    threads.emplace_back([&body, &options, &adjust, communicator] {
      at::set_num_threads(1);
      DataParallelOptions own = options;
      if (adjust != nullptr) adjust(*communicator, own);
      ToyRank rank(communicator, own);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ait::testing
