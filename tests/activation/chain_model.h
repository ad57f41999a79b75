// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_ACTIVATION_CHAIN_MODEL_H_
#define AIT_TESTS_ACTIVATION_CHAIN_MODEL_H_

// A chain of equal blocks whose saved bytes are known by hand: x + gelu(x w) v.
//
// A block saves x, h = x w and gelu(h); x is its input, so recomputing frees the two of
// [rows, wide] and holds x.

#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <string>
#include <vector>

#include "ait/activation/segments.h"

namespace ait::testing {

struct ChainModel {
  static constexpr std::int64_t kWidth = 48, kWide = 256;

  explicit ChainModel(int blocks) {
    for (int i = 0; i < blocks; ++i) {
      weights.push_back(at::randn({kWidth, kWide}).mul_(0.1).set_requires_grad(true));
      weights.push_back(at::randn({kWide, kWidth}).mul_(0.1).set_requires_grad(true));
      names.push_back("blocks." + std::to_string(i));
    }
    for (at::Tensor& weight : weights) weight.mutable_grad() = at::zeros_like(weight);
  }

  static at::Tensor Block(const at::Tensor& x, const at::Tensor& w, const at::Tensor& v) {
    return x.add(at::matmul(at::gelu(at::matmul(x, w)), v));
  }

  at::Tensor Loss(ActivationPlan& plan, at::Tensor x) const {
    for (std::size_t i = 0; i < names.size(); ++i) {
      x = plan.Run(
          names[i],
          [&w = weights[2 * i], &v = weights[2 * i + 1]](const at::Tensor& in) {
            return Block(in, w, v);
          },
          x);
    }
    return x.square().mean();
  }

  /// Forward and backward; gradients begin at zero.
  void Step(ActivationPlan& plan, const at::Tensor& input) const {
    for (const at::Tensor& weight : weights) weight.grad().zero_();
    Loss(plan, input).backward();
  }

  std::vector<at::Tensor> Gradients() const {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& weight : weights) gradients.push_back(weight.grad().clone());
    return gradients;
  }

  std::vector<at::Tensor> weights;
  std::vector<std::string> names;
};

inline bool Equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return a.size() == b.size();
}

}  // namespace ait::testing

#endif  // AIT_TESTS_ACTIVATION_CHAIN_MODEL_H_
