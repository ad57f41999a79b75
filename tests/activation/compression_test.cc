// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/compression.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <c10/core/GradMode.h>

#include <limits>
#include <string>

#include "activation/activation_fixtures.h"
#include "ait/activation/offload.h"
#include "ait/memory/heap.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::SameBits;
using testing::SmallNetwork;
using testing::StatusIs;

/// Counts bytes of what is saved, and keeps it.
class CountsBytes final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
    bytes += static_cast<std::int64_t>(tensor.nbytes());
    return nullptr;
  }
  std::int64_t bytes = 0;
};

bool SameBitsOrNan(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() && at::allclose(a, b, 0, 0, true) &&
         at::equal(a.signbit(), b.signbit());
}

class Masks : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  /// Positive, negative, both zeros, infinite and NaN, more than one task of them.
  static at::Tensor Input(at::IntArrayRef sizes) {
    at::manual_seed(5);
    at::Tensor x = at::randn(sizes).view(-1);
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> special = {0.0, -0.0, infinity, -infinity, std::nan("")};
    for (std::size_t i = 0; i < special.size(); ++i)
      x[static_cast<std::int64_t>(i * 3)] = special[i];
    return x.view(sizes).to(GetParam());
  }

  template <typename Function>
  static std::pair<at::Tensor, at::Tensor> Run(const at::Tensor& input, const at::Tensor& weight,
                                               const Function& function) {
    const at::Tensor x = input.detach().set_requires_grad(true);
    at::manual_seed(6);
    const at::Tensor result = function(x);
    return {result.detach(), torch::autograd::grad({result}, {x}, {weight})[0]};
  }
};

TEST_P(Masks, ReluIsLibtorchs) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{15}, {300, 257}, {3, 8, 9, 10}}) {
    const at::Tensor x = Input(sizes), weight = at::randn(sizes).to(GetParam());
    const auto expected = Run(x, weight, [](const at::Tensor& t) { return at::relu(t); });
    const auto got = Run(x, weight, [](const at::Tensor& t) { return Relu(t); });
    EXPECT_TRUE(SameBitsOrNan(got.first, expected.first));
    EXPECT_TRUE(SameBitsOrNan(got.second, expected.second));
  }
}

TEST_P(Masks, DropoutIsLibtorchs) {
  for (const double probability : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const at::Tensor x = Input({300, 257}), weight = at::randn({300, 257}).to(GetParam());
    for (const bool training : {false, true}) {
      const auto expected = Run(
          x, weight, [&](const at::Tensor& t) { return at::dropout(t, probability, training); });
      const auto got =
          Run(x, weight, [&](const at::Tensor& t) { return Dropout(t, probability, training); });
      EXPECT_TRUE(SameBitsOrNan(got.first, expected.first)) << probability;
      EXPECT_TRUE(SameBitsOrNan(got.second, expected.second)) << probability;
    }
  }
}

TEST_P(Masks, StridesMayBeAny) {
  const at::Tensor channels_last = Input({4, 5, 6, 7}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor gaps = Input({40, 50}).slice(1, 0, 50, 2), turned = Input({40, 50}).t();
  for (const at::Tensor& x : {channels_last, gaps, turned}) {
    for (const at::Tensor& weight :
         {at::randn(x.sizes()).to(GetParam()), at::ones({1}, GetParam()).expand(x.sizes())}) {
      const auto expected =
          Run(x, weight, [](const at::Tensor& t) { return at::relu(at::dropout(t, 0.3, true)); });
      const auto got =
          Run(x, weight, [](const at::Tensor& t) { return Relu(Dropout(t, 0.3, true)); });
      EXPECT_TRUE(SameBitsOrNan(got.first, expected.first));
      EXPECT_TRUE(SameBitsOrNan(got.second, expected.second));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Masks,
                         ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf));

TEST(Masks, SaveOneBitAnElement) {
  const auto counts = std::make_shared<CountsBytes>();
  const SavedTensorScope scope(counts);
  const at::Tensor x = at::randn({64, 1000}).set_requires_grad(true);
  const at::Tensor y = Relu(x);
  EXPECT_EQ(counts->bytes, 8000);
  const at::Tensor z = Dropout(y, 0.5, true);
  EXPECT_EQ(counts->bytes, 16000);
}

TEST(Masks, HaveSecondDerivatives) {
  const auto second = [](bool ours) {
    const at::Tensor x = at::linspace(-1, 1, 101).clone().set_requires_grad(true);
    at::manual_seed(1);
    const at::Tensor y =
        ours ? Dropout(Relu(x.sin()), 0.4, true) : at::dropout(at::relu(x.sin()), 0.4, true);
    const at::Tensor first =
        torch::autograd::grad({(y * y * x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({(first * first).sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(second(true), second(false)));
}

TEST(Masks, WithoutGradientNothingIsSaved) {
  const auto counts = std::make_shared<CountsBytes>();
  const SavedTensorScope scope(counts);
  EXPECT_FALSE(Relu(at::randn({10})).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(Dropout(at::randn({10}).set_requires_grad(true), 0.5, true).requires_grad());
  EXPECT_EQ(counts->bytes, 0);
}

std::shared_ptr<ActivationCompression> Make(ActivationCompressionOptions options) {
  options.at_least = Bytes(256);
  return ActivationCompression::Create(std::move(options)).value();
}

/// What a policy gives back of a tensor.
at::Tensor RoundTrip(const std::shared_ptr<ActivationCompression>& policy, const at::Tensor& x) {
  const auto saved = policy->Save(x);
  return saved == nullptr ? at::Tensor() : saved->Restore();
}

TEST(ActivationCompression, Bf16IsTheNearest) {
  const at::Tensor x = at::randn({33, 65}) * at::logspace(-30, 30, 65);
  const at::Tensor got = RoundTrip(Make({}), x);
  EXPECT_TRUE(at::equal(got, x.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(((got - x).abs() <= x.abs() * 0x1p-8).all().item<bool>());
}

TEST(ActivationCompression, Int8IsWithinItsBound) {
  for (const std::int64_t block : {32, 100, 256}) {
    const at::Tensor x = at::randn({40, 1000}) * at::logspace(-20, 20, 40).unsqueeze(1);
    const at::Tensor got = RoundTrip(Make({.format = SavedFormat::kInt8, .block = block}), x);
    for (std::int64_t begin = 0; begin < x.numel(); begin += block) {
      const std::int64_t n = std::min(block, x.numel() - begin);
      const at::Tensor exact = x.view(-1).narrow(0, begin, n),
                       back = got.view(-1).narrow(0, begin, n);
      const double most = exact.abs().max().item<double>() / 254 * (1 + 0x1p-20);
      ASSERT_LE((exact - back).abs().max().item<double>(), most) << block << " at " << begin;
    }
  }
}

TEST(ActivationCompression, Int8OfBf16) {
  const at::Tensor x = at::randn({64, 128}).to(at::kBFloat16);
  const at::Tensor got = RoundTrip(Make({.format = SavedFormat::kInt8}), x);
  EXPECT_EQ(got.dtype(), at::kBFloat16);
  EXPECT_LE((got.to(at::kFloat) - x.to(at::kFloat)).abs().max().item<double>(),
            x.abs().max().item<double>() * (1 / 254.0 + 1 / 256.0));
  EXPECT_FALSE(RoundTrip(Make({}), x).defined());  // bf16 is bf16 already
}

TEST(ActivationCompression, ABlockThatIsNotFiniteIsNan) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const at::Tensor x = at::ones({1000});
    x[300] = bad;
    const at::Tensor got = RoundTrip(Make({.format = SavedFormat::kInt8}), x);
    EXPECT_TRUE(got.narrow(0, 256, 256).isnan().all().item<bool>());
    EXPECT_TRUE(at::equal(got.narrow(0, 0, 256), at::ones({256})));
  }
}

TEST(ActivationCompression, GradientsAreNearAndTheLossIsExact) {
  const SmallNetwork network;
  const auto plain = network.Step();
  for (const auto& [format, bound] :
       {std::pair{SavedFormat::kBf16, 0.02}, std::pair{SavedFormat::kInt8, 0.05}}) {
    const auto policy = Make({.format = format});
    const SavedTensorScope scope(policy);
    const auto got = network.Step();
    EXPECT_TRUE(at::equal(got[0], plain[0]));
    for (std::size_t i = 1; i < got.size(); ++i) {
      const double error = (got[i] - plain[i]).norm().item<double>();
      EXPECT_LT(error, plain[i].norm().item<double>() * bound) << i;
      EXPECT_GT(error, 0) << i;
    }
    const ActivationCompressionStatistics statistics = policy->statistics();
    EXPECT_GT(statistics.shared, 0);
    EXPECT_LT(statistics.bytes_after,
              statistics.bytes_before * (format == SavedFormat::kInt8 ? 0.27 : 0.51));
  }
}

TEST(ActivationCompression, ComposesWithOffload) {
  const SmallNetwork network;
  for (const SavedFormat format : {SavedFormat::kBf16, SavedFormat::kInt8}) {
    std::vector<at::Tensor> alone, both;
    {
      const SavedTensorScope scope(Make({.format = format}));
      alone = network.Step();
    }
    const auto offload =
        ActivationOffload::Create({.memory = HeapResource::Create(), .at_least = Bytes(128)})
            .value();
    const SavedTensorScope scope(Make({.format = format, .then = offload}));
    EXPECT_TRUE(SameBits(network.Step(), alone));
    EXPECT_GT(offload->statistics().moved, 10);
  }
}

TEST(ActivationCompression, RetainedGraphIsRestoredAgain) {
  const SmallNetwork network;
  const SavedTensorScope scope(Make({.format = SavedFormat::kInt8}));
  const at::Tensor loss = network.Loss();
  loss.backward({}, true);
  const auto first = network.TakeGradients();
  loss.backward();
  EXPECT_TRUE(SameBits(network.TakeGradients(), first));
}

TEST(ActivationCompression, WhatIsSavedOftenIsCompressedOnce) {
  const auto policy = Make({.format = SavedFormat::kInt8});
  const SavedTensorScope scope(policy);
  const at::Tensor x = at::randn({4096}).set_requires_grad(true), y = x * 2;
  const at::Tensor loss = (y.sin() + y.cos() + y.square()).sum();
  EXPECT_EQ(policy->statistics().compressed, 3);
  EXPECT_EQ(policy->statistics().shared, 2);
  EXPECT_EQ(policy->statistics().bytes_before, 4096 * 4);
  loss.backward();
}

TEST(ActivationCompression, ParametersAndExactTensorsStay) {
  const auto policy = Make({});
  const at::Tensor x = at::randn({64, 64}).set_requires_grad(true), table = at::randn({64, 64});
  policy->KeepExact({table});
  const SavedTensorScope scope(policy);
  x.mm(x.t()).sum().backward();
  (x * table).sum().backward();
  EXPECT_EQ(policy->statistics().compressed, 0);
}

TEST(ActivationCompression, AChangeInPlaceIsAnErrorOfBackward) {
  const SavedTensorScope scope(Make({}));
  const at::Tensor x = at::randn({4096}).set_requires_grad(true), y = x.tanh(), loss = y.sum();
  y.detach().add_(1);
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(ActivationCompression, RefusesWhatIsNotAllowed) {
  EXPECT_THAT(ActivationCompression::Create({.block = 8}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("8 elements share a scale")));
  EXPECT_THAT(ActivationCompression::Create({.at_least = Bytes(0)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at_least is 0")));
}

}  // namespace
}  // namespace ait
