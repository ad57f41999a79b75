// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <stdexcept>
#include <thread>

namespace ait {
namespace {

// A clone: libtorch keeps no casts of views.
at::Tensor Weight() { return at::linspace(-1, 1, 64).view({8, 8}).clone().set_requires_grad(true); }
at::Tensor Input() { return at::linspace(0, 1, 16).view({2, 8}); }

TEST(Autocast, RunsProductsInTheDtypeAndNothingElse) {
  const at::Tensor weight = Weight();
  for (const auto& [dtype, type] :
       {std::pair{DType::kBFloat16, at::kBFloat16}, std::pair{DType::kFloat16, at::kHalf}}) {
    const Autocast scope(dtype);
    EXPECT_EQ(Autocast::Current(), dtype);
    const at::Tensor product = at::matmul(Input(), weight);
    EXPECT_EQ(product.scalar_type(), type);
    EXPECT_EQ(at::mse_loss(product, product).scalar_type(), at::kFloat);
    EXPECT_EQ(weight.scalar_type(), at::kFloat);
  }
  EXPECT_EQ(Autocast::Current(), DType::kFloat32);
  EXPECT_EQ(at::matmul(Input(), weight).scalar_type(), at::kFloat);
}

TEST(Autocast, GradientsComeInTheDtypeOfTheParameterWithoutAScopeInBackward) {
  const at::Tensor weight = Weight();
  at::Tensor loss;
  {
    const Autocast scope(DType::kBFloat16);
    loss = at::matmul(Input(), weight).sum();
  }
  loss.backward();
  ASSERT_TRUE(weight.grad().defined());
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(weight.grad(), Input().sum(0).unsqueeze(1).expand({8, 8}), 1e-2));
}

TEST(Autocast, GivesTheThreadBackAsItWasHoweverTheScopeIsLeft) {
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  at::autocast::set_autocast_cache_enabled(false);
  EXPECT_THROW(
      {
        const Autocast scope(DType::kBFloat16);
        EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
        throw std::runtime_error("the forward failed");
      },
      std::runtime_error);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(at::autocast::increment_nesting(), 1) << "the depth is that of before";
  at::autocast::decrement_nesting();
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
}

TEST(Autocast, ScopesNestAndFloat32SwitchesOff) {
  const Autocast outer(DType::kBFloat16);
  {
    const Autocast inner(DType::kFloat16);
    EXPECT_EQ(Autocast::Current(), DType::kFloat16);
    const Autocast off(DType::kFloat32);
    EXPECT_EQ(Autocast::Current(), DType::kFloat32);
    EXPECT_EQ(at::matmul(Input(), Weight()).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(Autocast::Current(), DType::kBFloat16);
}

TEST(Autocast, AWeightUsedTwiceInAScopeIsCastOnce) {
  const at::Tensor weight = Weight();
  const auto casts = [&](Autocast::Cache cache) {
    const Autocast scope(DType::kBFloat16, Autocast::Device::kCpu, cache);
    const at::Tensor first = at::matmul(Input(), weight), second = at::matmul(Input(), weight);
    // The node that both products got their weight from: one, if the cast was kept.
    return first.grad_fn()->next_edge(1).function == second.grad_fn()->next_edge(1).function ? 1
                                                                                             : 2;
  };
  EXPECT_EQ(casts(Autocast::Cache::kOn), 1);
  EXPECT_EQ(casts(Autocast::Cache::kOff), 2);
}

TEST(Autocast, AWeightChangedBetweenScopesIsSeen) {
  const at::Tensor weight = Weight();
  const auto product = [&] {
    const Autocast scope(DType::kBFloat16);
    return at::matmul(Input(), weight).sum().item<float>();
  };
  const float before = product();
  {
    const at::NoGradGuard no_grad;
    weight.add_(1);
  }
  EXPECT_NEAR(product(), before + Input().sum().item<float>() * 8, 1);
}

TEST(Autocast, AWeightChangedWithinAScopeIsSeenByANestedOneAndAfterClearCache) {
  const at::Tensor weight = Weight();
  const auto product = [&] { return at::matmul(Input(), weight).sum().item<float>(); };
  const Autocast scope(DType::kBFloat16);
  const float before = product();
  const float change = Input().sum().item<float>() * 8;
  {
    const at::NoGradGuard no_grad;
    weight.add_(1);
  }
  {
    const Autocast nested(DType::kBFloat16);
    EXPECT_NEAR(product(), before + change, 1);
  }
  EXPECT_NEAR(product(), before + change, 1) << "and by the outer scope after it";
  {
    const at::NoGradGuard no_grad;
    weight.add_(1);
  }
  Autocast::ClearCache();
  EXPECT_NEAR(product(), before + 2 * change, 1);
}

TEST(Autocast, ACastMadeWithoutGradientsIsNeverUsedWithThem) {
  const at::Tensor weight = Weight();
  const Autocast scope(DType::kBFloat16);
  {
    const at::NoGradGuard no_grad;
    const Autocast evaluation(DType::kBFloat16);
    EXPECT_FALSE(at::matmul(Input(), weight).requires_grad());
  }
  at::matmul(Input(), weight).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(Autocast, NorIsOneMadeBeforeTheScope) {
  const at::Tensor weight = Weight();
  at::autocast::set_autocast_enabled(at::kCPU, true);  // of a program that has no scopes
  at::autocast::increment_nesting();
  {
    const at::NoGradGuard no_grad;
    at::matmul(Input(), weight);
  }
  {
    const Autocast scope(DType::kBFloat16);
    at::matmul(Input(), weight).sum().backward();
  }
  EXPECT_TRUE(weight.grad().defined());
  at::autocast::decrement_nesting();
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(Autocast, IsOfItsThreadAlone) {
  const Autocast scope(DType::kBFloat16);
  std::thread([] {
    EXPECT_EQ(Autocast::Current(), DType::kFloat32);
    EXPECT_EQ(Autocast::opened(DType::kBFloat16), 0);
  }).join();
}

TEST(Autocast, CountsTheScopesOfADtype) {
  const std::int64_t bf16 = Autocast::opened(DType::kBFloat16);
  const std::int64_t fp16 = Autocast::opened(DType::kFloat16);
  {
    const Autocast scope(DType::kFloat16);
  }
  {
    const Autocast scope(DType::kFloat16);
  }
  EXPECT_EQ(Autocast::opened(DType::kFloat16), fp16 + 2);
  EXPECT_EQ(Autocast::opened(DType::kBFloat16), bf16);
}

}  // namespace
}  // namespace ait
