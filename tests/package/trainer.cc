// SPDX-License-Identifier: Apache-2.0
// A trainer of somebody else: fits y = 2x with what the package offers on libtorch.
#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>

#include "ait/comm/thread_group.h"
#include "ait/optim/sgd.h"
#include "ait/parallel/data_parallel.h"
#include "ait/runtime/trainer.h"

int main() {
  const at::Tensor x = at::randn({64}), y = 2 * x;
  const at::Tensor weight = at::zeros({1}).requires_grad_();
  ait::NamedTensors parameters;
  parameters.Add("weight", weight);
  auto engine = ait::DataParallel::Create(ait::MakeThreadGroup(ait::WorldSize(1))[0], parameters);
  if (!engine.ok()) return 1;
  ait::Trainer trainer(**engine, ait::Sgd{{.learning_rate = 0.2}}, {.total_steps = 50});
  while (!trainer.done()) {
    auto step = trainer.Step(x, [&](const at::Tensor& inputs) {
      return ait::LossSum{(weight * inputs - y).pow(2).sum(), inputs.numel()};
    });
    if (!step.ok()) return 1;
  }
  std::printf("weight %.4f\n", weight.item<double>());
  return std::abs(weight.item<double>() - 2) < 1e-3 ? 0 : 1;
}
