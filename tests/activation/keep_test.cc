// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/keep.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "ait/activation/checkpoint.h"
#include "ait/base/throw_on_error.h"
#include "ait/tensor/autocast.h"

namespace ait {
namespace {

struct Block {
  at::Tensor up = (at::randn({32, 16}) / 4).set_requires_grad(true);
  at::Tensor bias = at::randn({32}).set_requires_grad(true);
  at::Tensor down = (at::randn({16, 32}) / 4).set_requires_grad(true);

  at::Tensor Attend(const at::Tensor& x) const {
    const at::Tensor q = x.view({1, 2, 3, 16}), k = q.sin(), v = q.cos();
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true).view({6, 16});
  }
  std::vector<at::Tensor> TakeGradients() const {
    std::vector<at::Tensor> gradients;
    for (at::Tensor p : {up, bias, down}) {
      gradients.push_back(p.grad());
      p.mutable_grad() = at::Tensor();
    }
    return gradients;
  }
};

at::Tensor Input() { return at::linspace(-1, 1, 96).view({6, 16}).clone(); }

template <typename Forward>
std::vector<at::Tensor> Train(const Block& block, const Forward& forward) {
  at::manual_seed(4);
  const at::Tensor loss = forward();
  const at::Tensor random = at::rand({3});
  loss.backward();
  std::vector<at::Tensor> outcome = block.TakeGradients();
  outcome.push_back(loss.detach());
  outcome.push_back(random);
  return outcome;
}

void ExpectSame(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

at::Tensor Forward(const Block& block, const at::Tensor& in, bool keeps) {
  const auto maybe = [&](const auto& function) { return keeps ? Keep(function) : function(); };
  const at::Tensor x = in.sin();
  const at::Tensor h = at::gelu(maybe([&] { return at::linear(x, block.up, block.bias); }));
  const at::Tensor y = at::dropout(maybe([&] { return at::linear(h, block.down); }), 0.3, true);
  const at::Tensor z = maybe([&] { return block.Attend(y); });
  return (at::dropout(z, 0.3, true) + x).square().sum();
}

TEST(Keep, IsThePlainRunBitForBit) {
  const Block block;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto plain = Train(block, [&] {
      const Autocast autocast(dtype);
      return Forward(block, Input(), true);  // outside of a segment it does nothing
    });
    const auto counters = std::make_shared<CheckpointCounters>();
    const auto kept = Train(block, [&] {
      const Autocast autocast(dtype);
      return Checkpoint(
          {.counters = counters}, [&block](const at::Tensor& x) { return Forward(block, x, true); },
          Input());
    });
    ExpectSame(plain, kept);
    EXPECT_EQ(counters->recomputes, 1);
    EXPECT_GT(counters->kept_bytes, 6 * (32 + 16 + 16) * (dtype == DType::kFloat32 ? 4 : 2));
  }
}

TEST(Keep, ByOperatorIsThePlainRunBitForBit) {
  const Block block;
  const auto plain = Train(block, [&] { return Forward(block, Input(), false); });
  std::vector<std::string> both = MatrixProducts();
  for (const std::string& name : AttentionOperators()) both.push_back(name);
  for (const auto& operators : {MatrixProducts(), AttentionOperators(), both}) {
    const auto counters = std::make_shared<CheckpointCounters>();
    ExpectSame(plain, Train(block, [&] {
                 return Checkpoint(
                     {.keep = operators, .counters = counters},
                     [&block](const at::Tensor& x) { return Forward(block, x, false); }, Input());
               }));
    EXPECT_GT(counters->kept_bytes, 0);
  }
}

TEST(Keep, WhatIsKeptDoesNotRunAgain) {
  const Block block;
  for (const bool keeps : {false, true}) {
    const at::Tensor loss = Checkpoint(
        [&block, keeps](const at::Tensor& x) {
          const auto up = [&] { return at::linear(x, block.up); };
          return at::linear(at::gelu(keeps ? Keep(up) : up()), block.down).sum();
        },
        Input());
    loss.backward({}, true);
    const at::Tensor before = block.down.grad();
    block.TakeGradients();
    // Other weights, which no counter of versions knows of: only a product that runs again sees them.
    *block.up.mutable_data_ptr<float>() += 100;
    loss.backward();
    EXPECT_EQ(at::equal(before, block.down.grad()), keeps);
    *block.up.mutable_data_ptr<float>() -= 100;
    block.TakeGradients();
  }
}

// Attention is marked as one that draws, also without dropout.
TEST(Keep, WithoutTheStateOfGeneratorsTheyAreLeftAlone) {
  const Block block;
  const auto draw_after = [&](bool checkpoints) {
    at::manual_seed(4);
    const auto attend = [&](const at::Tensor& x) { return block.Attend(x.sin()); };
    at::Tensor x = Input().set_requires_grad(true);
    at::Tensor y = x;
    for (int i = 0; i < 2; ++i) {
      y = checkpoints ? Checkpoint({.preserve_random_state = false, .keep = AttentionOperators()},
                                   attend, y)
                      : attend(y);
      at::rand({7});
    }
    y.sum().backward();
    return at::rand({3});
  };
  EXPECT_TRUE(at::equal(draw_after(true), draw_after(false)));
}

TEST(Keep, SeveralBackwardPassesAndThreads) {
  const Block block;
  const auto train = [&](const at::Tensor& loss) {
    loss.backward({}, true);
    loss.backward({}, true);
    std::thread([&] { loss.backward(); }).join();
    return block.TakeGradients();
  };
  at::manual_seed(4);
  const auto plain = train(Forward(block, Input(), false));
  at::manual_seed(4);
  ExpectSame(plain,
             train(Checkpoint([&block](const at::Tensor& x) { return Forward(block, x, true); },
                              Input())));
}

TEST(Keep, NestsInSegments) {
  const Block block;
  const auto inner = [&block](const at::Tensor& x) { return Forward(block, x, true); };
  const auto outer = [&block, inner](const at::Tensor& x) {
    const at::Tensor y = Keep([&] { return at::linear(at::linear(x, block.up), block.down); });
    return Checkpoint(inner, y) + Keep([&] { return Checkpoint(inner, y.tanh()); });
  };
  const auto plain = Train(block, [&] {
    const at::Tensor x = Input(), y = at::linear(at::linear(x, block.up), block.down);
    return Forward(block, y, false) + Forward(block, y.tanh(), false);
  });
  ExpectSame(plain, Train(block, [&] { return Checkpoint(outer, Input()); }));
}

TEST(Keep, ChangesInPlaceInsideOfTheScopeAreKeptToo) {
  const Block block;
  // As torch::nn::Linear computes three dimensions: a product, a view that is none, a sum in place.
  const auto linear = [&block](const at::Tensor& x) {
    return at::matmul(x.view({2, 3, 16}), block.up.t()).add_(block.bias);
  };
  for (const bool by_operator : {false, true}) {
    const auto function = [linear, by_operator](const at::Tensor& x) {
      const at::Tensor y = by_operator ? linear(x) : Keep(linear, x).relu_();
      return y.sin().sum();
    };
    const auto plain = Train(block, [&] { return function(Input()); });
    const auto counters = std::make_shared<CheckpointCounters>();
    if (!by_operator) {  // relu_ is outside of the scope
      const at::Tensor loss = Checkpoint(function, Input());
      EXPECT_THROW(loss.backward(), StatusException);
      continue;
    }
    const CheckpointOptions options{.keep = MatrixProducts(), .counters = counters};
    const auto kept = Train(block, [&] { return Checkpoint(options, function, Input()); });
    for (const std::size_t i : {0, 1, 3}) EXPECT_TRUE(at::equal(plain[i], kept[i])) << i;
    EXPECT_EQ(counters->kept_bytes, 6 * 32 * 4);
    const at::Tensor loss = Checkpoint(options, function, Input());
    loss.backward({}, true);
    loss.backward();
    const at::Tensor twice = block.bias.grad();
    EXPECT_TRUE(at::equal(twice, plain[1] * 2));
    block.TakeGradients();
  }
}

TEST(Keep, WhatIsReadAndThenChangedInPlaceIsComputedAgain) {
  const Block block;
  const auto function = [&block](const at::Tensor& x) {
    const KeepScope keep;
    at::Tensor y = at::linear(x, block.up);
    const at::Tensor before = y * 2;
    y.add_(block.bias);
    y.mul_(2);
    return (y.sin() + before.cos()).sum();
  };
  const auto plain = Train(block, [&] { return function(Input()); });
  const auto kept = Train(block, [&] { return Checkpoint(function, Input()); });
  for (const std::size_t i : {0, 1, 3}) EXPECT_TRUE(at::equal(plain[i], kept[i])) << i;
}

TEST(Keep, ChangesInPlaceOutsideAreRefused) {
  const Block block;
  const auto function = [&block](const at::Tensor& x) {
    const at::Tensor y = Keep([&] { return at::linear(x, block.up); });
    return y.add_(1).sin().sum();
  };
  const at::Tensor loss = Checkpoint({.name = "mlp"}, function, Input());
  try {
    loss.backward();
    FAIL();
  } catch (const StatusException& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(error.what()).find("segment mlp: kept operation 0, aten::"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("at version 1, expected version 0"),
              std::string::npos);
  }
}

TEST(Keep, OtherOperationsThanInForwardAreRefused) {
  const Block block;
  int calls = 0;
  const auto function = [&](const at::Tensor& x) {
    return Keep([&] { return calls++ == 0 ? x.mm(block.down.t()) : x.mm(block.down.t()).exp(); })
        .sin()
        .sum();
  };
  const at::Tensor loss = Checkpoint(
      {.name = "gate"},
      [&](const at::Tensor& x) { return function(at::linear(x, block.up.slice(0, 0, 32))); },
      Input());
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(Keep, KeptResultsGoWithTheGraph) {
  const Block block;
  at::Tensor kept;
  {
    const at::Tensor loss = Checkpoint(
        [&](const at::Tensor& x) {
          const at::Tensor y = Keep([&] { return at::linear(x, block.up); });
          if (!kept.defined()) kept = y.detach();
          return y.sin().sum();
        },
        Input());
    EXPECT_GT(kept.storage().use_count(), 1);
    loss.backward();
  }
  EXPECT_EQ(kept.storage().use_count(), 1);
}

}  // namespace
}  // namespace ait
