// SPDX-License-Identifier: Apache-2.0
// The code of docs/activation.md.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ait/activation/checkpoint.h"
#include "ait/activation/keep.h"
#include "ait/parallel/unit.h"
#include "parallel/tiny_model.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

struct BlockImpl {
  at::Tensor weight = (at::randn({8, 8}) / 4).set_requires_grad(true);
  at::Tensor forward(at::Tensor x) { return x + at::linear(x, weight).tanh(); }
};

/// As torch::nn has them.
struct Block {
  const std::shared_ptr<BlockImpl>& ptr() const { return impl; }
  std::shared_ptr<BlockImpl> impl = std::make_shared<BlockImpl>();
};

// clang-format off: as the page shows it
at::Tensor Blocks(const std::vector<Block>& blocks, const at::Tensor& tokens) {
  const at::Tensor table = at::ones({10, 8});
  const auto embedding = [&](const at::Tensor& t) { return at::embedding(table, t); };
  at::Tensor x = embedding(tokens);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    x = Checkpoint({.name = StrCat("blocks.", i)}, &BlockImpl::forward, blocks[i].ptr(), x);
  }
  return x;
}

at::Tensor Kept(at::Tensor x, const at::Tensor& up, const at::Tensor& down) {
  const auto block = [&](const at::Tensor& in) {
    const at::Tensor hidden = at::gelu(Keep([&] { return at::linear(in, up); }));
    return in + at::dropout(at::linear(hidden, down), 0.1, true);
  };
  x = Checkpoint(block, x);                                        // the first product runs once
  x = Checkpoint({.keep = MatrixProducts()}, block, x);            // both do
  return x;
}

at::Tensor Normalize(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     const at::Tensor& mean, const at::Tensor& variance) {
  at::Tensor y;
  const double momentum = IsRecomputing() ? 0.0 : 0.1;
  y = at::batch_norm(x, weight, bias, mean, variance, true, momentum, 1e-5, false);
  return y;
}

at::Tensor InUnits(const std::unique_ptr<DataParallel>& engine, at::Tensor x,
                   const at::Tensor& weight) {
  const auto run = [&](const at::Tensor& in) { return at::linear(in, weight).tanh(); };
  x = Checkpoint([&engine, run](const at::Tensor& in) { return engine->Unit("blocks.0", run, in); }, x);
  x = engine->Unit("blocks.1", [&] { return Checkpoint(run, x); });
  return x;
}
// clang-format on

TEST(ActivationPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/activation.md", AIT_SOURCE);
}

TEST(ActivationPage, ItsCodeRuns) {
  const std::vector<Block> blocks(3);
  Blocks(blocks, at::arange(4)).sum().backward();
  EXPECT_TRUE(blocks[2].impl->weight.grad().defined());

  const at::Tensor up = at::randn({16, 8}).set_requires_grad(true);
  const at::Tensor down = at::randn({8, 16}).set_requires_grad(true);
  Kept(at::ones({2, 8}), up, down);  // its graph goes before what it refers to

  const at::Tensor mean = at::zeros({8}), variance = at::ones({8});
  const at::Tensor x = at::randn({4, 8});
  const at::Tensor weight = at::ones({8}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(Normalize, x, weight, at::zeros({8}), mean, variance);
  const at::Tensor once = mean.clone();
  y.square().sum().backward();
  EXPECT_TRUE(at::equal(mean, once));

  NamedTensors parameters;
  const at::Tensor square = at::eye(8).set_requires_grad(true);
  parameters.Add("square", square);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<DataParallel> engine,
                       DataParallel::Create(testing::Alone(), parameters));
  EXPECT_EQ(InUnits(engine, at::ones({2, 8}), square).sizes(), at::IntArrayRef({2, 8}));
}

}  // namespace
}  // namespace ait
