// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>

#include "optim/optim_fixtures.h"

namespace ait {
namespace {

using ::ait::testing::kAllSimdLevels;
using ::ait::testing::RandomFloats;
using ::ait::testing::ThreadsOf;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double SumInLongDouble(std::span<const float> values) {
  long double sum = 0;
  for (float value : values) sum += static_cast<long double>(value) * value;
  return static_cast<double>(sum);
}

double SumOf(std::span<const float> values) { return ComputeSumOfSquares(values).value(); }

TEST(SumOfSquares, EqualsTheSumInHigherPrecision) {
  for (std::int64_t n : {1, 7, 63, 64, 65, 127, 128, 4095, 4096, 4097, 100'003}) {
    const auto values = RandomFloats(n, static_cast<unsigned>(n), 0.01f);
    const double expected = SumInLongDouble(values);
    EXPECT_NEAR(SumOf(values), expected, 1e-15 * expected) << n;
  }
}

TEST(SumOfSquares, IsZeroForNothingAndForZeros) {
  EXPECT_EQ(SumOf({}), 0);
  EXPECT_EQ(SumOf(std::vector<float>(1000, 0.0f)), 0);
  EXPECT_EQ(SumOf(std::vector<float>(1000, -0.0f)), 0);
}

TEST(SumOfSquares, HoldsTheSquaresOfTheLeastAndOfTheLargestFloats) {
  const float least = std::numeric_limits<float>::denorm_min();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(SumOf(std::vector<float>{least}), 0x1p-298);
  EXPECT_EQ(SumOf(std::vector<float>(100'000, least)), 0x1p-298 * 100'000);
  const double square = static_cast<double>(largest) * largest;
  EXPECT_EQ(SumOf(std::vector<float>(1 << 20, largest)), square * (1 << 20));
  std::vector<float> both(128, least);
  both[127] = largest;
  EXPECT_EQ(SumOf(both), square);
}

TEST(SumOfSquares, RoundsTheExactSumOfBlocksOnceToTheNearestEvenDouble) {
  // One value a block, so that the only rounding is the last.
  std::vector<float> values(64 * 5, 0.0f);
  values[0] = 1;
  values[64] = 0x1p-27f;
  EXPECT_EQ(SumOf(values), 1) << "below the tie";
  values[128] = 0x1p-27f;
  EXPECT_EQ(SumOf(values), 1) << "1 + 2^-53, a tie";
  values[192] = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(SumOf(values), 1 + 0x1p-52) << "above the tie by the least square there is";
  values[192] = 0x1p-26f;
  EXPECT_EQ(SumOf(values), 1 + 0x1p-51) << "1 + 2^-52 + 2^-53, a tie with an odd number below";
  values[256] = 0x1p-26f;
  EXPECT_EQ(SumOf(values), 1 + 0x1p-51) << "1 + 2^-51 + 2^-53, a tie with an even number below";
}

TEST(SumOfSquares, HasTheSameBitsForAnySimdLevelAndNumberOfThreads) {
  const auto values = RandomFloats(300'007, 3, 1e-3f);
  const double expected = SumOf(values);
  for (SimdLevel level : kAllSimdLevels) {
    for (int threads : {1, 2, 3, 7}) {
      EXPECT_EQ(ComputeSumOfSquares(values, ThreadsOf(threads), level).value(), expected)
          << Name(level) << ", " << threads << " threads";
    }
  }
}

TEST(SumOfSquares, HasTheSameBitsForAnyCutAtBlocksInAnyOrderAndOverRanks) {
  const auto values = RandomFloats(64 * 1000, 4, 1e3f);
  const std::span<const float> all(values);
  const double expected = SumOf(values);
  for (std::size_t slice : {64u, 128u, 64u * 7, 64u * 999}) {
    SumOfSquares forward;
    SumOfSquares ranks;
    std::vector<SumOfSquares> parts;
    for (std::size_t begin = 0; begin < all.size(); begin += slice) {
      parts.push_back(ComputeSumOfSquares(all.subspan(begin, std::min(slice, all.size() - begin))));
      forward.Add(parts.back());
      for (int i = 0; i < SumOfSquares::kWords; ++i) ranks.words()[i] += parts.back().words()[i];
    }
    SumOfSquares backward;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) backward.Add(*part);
    EXPECT_EQ(forward.value(), expected);
    EXPECT_EQ(backward.value(), expected);
    EXPECT_EQ(ranks.value(), expected) << "an all-reduce of the words is exact";
  }
}

TEST(SumOfSquares, FindsOneNonFiniteValueAnywhere) {
  for (float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
    for (SimdLevel level : kAllSimdLevels) {
      for (std::size_t n : {1u, 64u, 65u, 130u}) {
        for (std::size_t at = 0; at < n; ++at) {
          std::vector<float> values(n, 1.0f);
          values[at] = bad;
          ASSERT_FALSE(ComputeSumOfSquares(values, {}, level).finite()) << bad << " at " << at;
        }
      }
    }
  }
}

TEST(SumOfSquares, StaysNonFiniteWhenCombined) {
  SumOfSquares sum = ComputeSumOfSquares(std::vector<float>{kInfinity, -kInfinity});
  sum.Add(ComputeSumOfSquares(std::vector<float>{1}));
  SumOfSquares other;
  other.Add(sum);
  EXPECT_FALSE(other.finite());
  EXPECT_FALSE(GlobalNorm(other).finite);
  EXPECT_EQ(other.value(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(
      ComputeSumOfSquares(std::vector<float>(100, std::numeric_limits<float>::max())).finite());
}

TEST(GlobalNorm, ScalesAsTheGradientsAreScaled) {
  const SumOfSquares sum = ComputeSumOfSquares(std::vector<float>{3, 4});
  EXPECT_EQ(GlobalNorm(sum).value, 5);
  EXPECT_EQ(GlobalNorm(sum, 0.5).value, 2.5);
  EXPECT_EQ(GlobalNorm(sum, -2).value, 10);
}

TEST(ClipFactor, EqualsClipGradNormOfTorch) {
  for (double max_norm : {0.5, 1.0, 1e6}) {
    std::vector<at::Tensor> parameters;
    SumOfSquares sum;
    for (std::int64_t n : {1, 7, 63, 64, 65, 1000}) {
      const auto gradient = RandomFloats(n, static_cast<unsigned>(n), 0.1f);
      sum.Add(ComputeSumOfSquares(gradient));
      parameters.push_back(at::zeros({n}));
      parameters.back().mutable_grad() = at::tensor(gradient);
    }
    const at::Tensor before = parameters.back().grad().clone();
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, max_norm);
    const GradientNorm ours = GlobalNorm(sum);
    EXPECT_NEAR(ours.value, norm, 1e-6 * norm);
    const double factor = ClipFactor(ours.value, max_norm);
    EXPECT_TRUE(at::allclose(parameters.back().grad(), before * factor, 1e-6, 0)) << max_norm;
  }
}

TEST(ClipFactor, NeverAmplifiesAndIsOneWithoutALimit) {
  EXPECT_EQ(ClipFactor(0.1, 1.0), 1);
  EXPECT_EQ(ClipFactor(0, 1.0), 1);
  EXPECT_EQ(ClipFactor(1e30, std::numeric_limits<double>::infinity()), 1);
  EXPECT_EQ(ClipFactor(5, 0), 0);
}

}  // namespace
}  // namespace ait
