// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_ACTIVATION_ACTIVATION_FIXTURES_H_
#define AIT_TESTS_ACTIVATION_ACTIVATION_FIXTURES_H_

// A small network whose backward needs tensors of all kinds: shared ones, thirds of a projection,
// transposed and expanded views, integers, masks.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <vector>

namespace ait::testing {

struct SmallNetwork {
  static constexpr std::int64_t kBatch = 4, kTime = 32, kWidth = 64, kHeads = 4;

  SmallNetwork() {
    at::set_num_threads(1);  // its tensors are small: threads would wait for each other
    at::manual_seed(3);
    const auto parameter = [](at::IntArrayRef sizes) {
      return (at::randn(sizes) * 0.2).set_requires_grad(true);
    };
    table = parameter({50, kWidth});
    scale = parameter({kWidth});
    shift = parameter({kWidth});
    qkv = parameter({3 * kWidth, kWidth});
    up = parameter({4 * kWidth, kWidth});
    down = parameter({kWidth, 4 * kWidth});
    tokens = at::randint(50, {kBatch, kTime}, at::kLong);
  }

  std::vector<at::Tensor> parameters() const { return {table, scale, shift, qkv, up, down}; }

  at::Tensor Loss() const {
    at::manual_seed(4);  // of the dropout
    at::Tensor x = at::embedding(table, tokens);
    for (int i = 0; i < 2; ++i) {
      const at::Tensor normal = at::layer_norm(x, {kWidth}, scale, shift);
      const auto thirds = at::linear(normal, qkv)
                              .view({kBatch, kTime, 3, kHeads, kWidth / kHeads})
                              .permute({2, 0, 3, 1, 4})
                              .unbind(0);
      const at::Tensor mixed =
          at::scaled_dot_product_attention(thirds[0], thirds[1], thirds[2], {}, 0.0, true);
      x = x + mixed.transpose(1, 2).reshape({kBatch, kTime, kWidth}) * normal;
      const at::Tensor hidden = at::gelu(at::linear(x, up), "tanh");
      x = x + at::dropout(at::linear(hidden * hidden.sigmoid(), down), 0.1, true);
      x = x * x.mean(1, true).expand_as(x).tanh();
    }
    return at::cross_entropy_loss(at::matmul(x, table.t()).flatten(0, 1), tokens.flatten());
  }

  /// Loss and gradients; the gradients are gone afterwards.
  std::vector<at::Tensor> Step() const {
    std::vector<at::Tensor> results = {Loss()};
    results[0].backward();
    results[0] = results[0].detach();
    for (const at::Tensor& gradient : TakeGradients()) results.push_back(gradient);
    return results;
  }

  std::vector<at::Tensor> TakeGradients() const {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters()) {
      gradients.push_back(parameter.grad().clone());
      parameter.mutable_grad() = at::Tensor();
    }
    return gradients;
  }

  at::Tensor table, scale, shift, qkv, up, down, tokens;
};

inline bool SameBits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_ACTIVATION_ACTIVATION_FIXTURES_H_
