// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_OPTIM_TORCH_ORACLE_H_
#define AIT_TESTS_OPTIM_TORCH_ORACLE_H_

// Runs an optimizer of ait beside one of libtorch on the same numbers.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <utility>
#include <vector>

#include "ait/optim/optimizer.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait::testing {

/// Takes 100 steps with both and expects equal parameters. The parameters are those of LayoutOf;
/// `own` are the options of torch for those of two dimensions, `vectors` for those of one. The
/// learning rate changes from step to step, and gradients come scaled by 4.
template <typename TorchOptimizer, typename TorchOptions>
void ExpectEqualToTorch(const Optimizer& optimizer, TorchOptions own, TorchOptions vectors) {
  const ParameterLayout layout = LayoutOf({1, 7, 63, 64, 65, 1, 127, 128, 129, 1000, 4099});
  const std::int64_t size = layout.owned.back().end;
  std::vector<float> parameters = RandomFloats(size, 1);
  std::vector<float> gradients;
  std::vector<at::Tensor> matrices_of_torch;
  std::vector<at::Tensor> vectors_of_torch;
  std::vector<at::Tensor> tensors;
  for (const ParameterSegment& parameter : layout.parameters) {
    const at::Tensor values = at::from_blob(parameters.data() + parameter.begin, parameter.shape);
    tensors.push_back(values.clone().requires_grad_());
    (parameter.shape.size() == 2 ? matrices_of_torch : vectors_of_torch).push_back(tensors.back());
  }
  const double rates[] = {own.lr(), vectors.lr()};
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices_of_torch, std::make_unique<TorchOptions>(own));
  groups.emplace_back(vectors_of_torch, std::make_unique<TorchOptions>(vectors));
  TorchOptimizer oracle(std::move(groups), own);

  ASSERT_OK_AND_ASSIGN(const auto bound, optimizer.Bind(layout));
  for (unsigned step = 0; step < 100; ++step) {
    gradients = RandomFloats(size, 100 + step, 0.1f);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const ParameterSegment& parameter = layout.parameters[i];
      tensors[i].mutable_grad() =
          at::from_blob(gradients.data() + parameter.begin, parameter.shape).clone();
    }
    const double factor = 1.0 / (1 + step % 10);
    for (std::size_t g = 0; g < 2; ++g)
      oracle.param_groups()[g].options().set_lr(rates[g] * factor);
    oracle.step();

    for (float& gradient : gradients) gradient *= 4;
    ASSERT_OK(bound->BeginStep({.learning_rate_factor = factor,
                                .gradient_scale = 0.25,
                                .gradients_after = GradientsAfter::kZero}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ParameterSegment& parameter = layout.parameters[i];
    const at::Tensor ours = at::from_blob(parameters.data() + parameter.begin, parameter.shape);
    EXPECT_TRUE(at::allclose(ours, tensors[i].detach(), 2e-6, 2e-7))
        << parameter.name << ": largest difference "
        << (ours - tensors[i]).abs().max().item<float>();
  }
}

}  // namespace ait::testing

#endif  // AIT_TESTS_OPTIM_TORCH_ORACLE_H_
