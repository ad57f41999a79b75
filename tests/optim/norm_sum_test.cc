// SPDX-License-Identifier: Apache-2.0
// Norms of any p. The squares themselves are in norm_test.cc.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>

#include "ait/optim/norm.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::kAllSimdLevels;
using ::ait::testing::RandomFloats;
using ::ait::testing::StatusIs;
using ::ait::testing::ThreadsOf;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kAllP[] = {1, 1.5, 2, 3, 4, 7, kInfinity};

double NormOf(std::span<const float> values, double p) {
  NormSum sum(p);
  sum.Add(values);
  return sum.norm();
}

long double InLongDouble(std::span<const float> values, double p) {
  long double sum = 0;
  for (const float value : values) {
    const long double magnitude = std::fabs(static_cast<long double>(value));
    if (p == kInfinity) {
      sum = std::max(sum, magnitude);
    } else {
      sum += std::pow(magnitude, static_cast<long double>(p));
    }
  }
  return p == kInfinity ? sum : std::pow(sum, 1 / static_cast<long double>(p));
}

TEST(NormSum, EqualsTheNormInHigherPrecision) {
  for (const double p : kAllP) {
    for (const std::int64_t n : {0, 1, 7, 64, 65, 4096, 4097, 100'003}) {
      const auto values = RandomFloats(n, static_cast<unsigned>(n), 0.01f);
      const double expected = static_cast<double>(InLongDouble(values, p));
      EXPECT_NEAR(NormOf(values, p), expected, 4e-16 * expected) << "p " << p << ", " << n;
    }
  }
}

TEST(NormSum, IsWhatClipGradNormOfTorchReturns) {
  for (const double p : kAllP) {
    std::vector<at::Tensor> parameters;
    NormSum sum(p);
    for (const std::int64_t n : {1, 63, 64, 65, 1000}) {
      const auto gradient = RandomFloats(n, static_cast<unsigned>(n), 0.1f);
      sum.Add(gradient);
      parameters.push_back(at::zeros({n}));
      parameters.back().mutable_grad() = at::tensor(gradient);
    }
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, 1e9, p);
    EXPECT_NEAR(sum.norm(), norm, 2e-6 * norm) << p;
  }
}

// 1 + 2^24 · 2^-60 in double would stay 1, if each were added to it alone.
TEST(NormSum, KeepsWhatRoundingTakesOff) {
  std::vector<float> values(64 * 4096, 0.0f);
  for (std::size_t i = 0; i < values.size(); i += 64) values[i] = 0x1p-60f;
  values[0] = 1;
  EXPECT_EQ(NormOf(values, 1), 1 + 4095 * 0x1p-60);
  EXPECT_EQ(1 + 0x1p-60, 1);
  values[64] = 0x1p+60f;
  values[0] = 0;
  NormSum sum(1);
  sum.Add(std::span(values).first(64 * 100));
  sum.Add(std::span(values).subspan(64 * 100));
  EXPECT_EQ(sum.norm(), 0x1p+60 + 4094 * 0x1p-60);
}

TEST(NormSum, HasTheSameBitsForAnySimdLevelAndNumberOfThreads) {
  const auto values = RandomFloats(300'007, 3, 1e-3f);
  for (const double p : kAllP) {
    const double expected = NormOf(values, p);
    for (const SimdLevel level : kAllSimdLevels) {
      for (const int threads : {1, 2, 3, 7}) {
        NormSum sum(p);
        sum.Add(values, ThreadsOf(threads), level);
        EXPECT_EQ(sum.norm(), expected) << p << ", " << Name(level) << ", " << threads;
      }
    }
  }
}

TEST(NormSum, TravelsInWords) {
  const auto values = RandomFloats(64 * 300, 5, 2.0f);
  const std::span<const float> all(values);
  for (const double p : kAllP) {
    NormSum direct(p), through_words(p);
    for (std::size_t begin = 0; begin < all.size(); begin += 64 * 100) {
      NormSum rank(p);
      rank.Add(all.subspan(begin, 64 * 100));
      direct.Add(rank);
      std::vector<std::int64_t> words;
      rank.AppendWords(words);
      ASSERT_EQ(static_cast<int>(words.size()), NormSum::WordsOf(p));
      through_words.AddWords(words);
    }
    EXPECT_EQ(through_words.norm(), direct.norm()) << p;
    EXPECT_NEAR(direct.norm(), NormOf(values, p), 1e-15 * direct.norm()) << p;
  }
}

TEST(NormSum, FindsOneNonFiniteValueAnywhereAndKeepsIt) {
  for (const double p : kAllP) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t at : {0u, 63u, 64u, 4096u, 5000u}) {
        std::vector<float> values(5001, 1.0f);
        values[at] = bad;
        NormSum sum(p);
        sum.Add(values);
        EXPECT_FALSE(sum.finite()) << p << ", " << at;
        NormSum total(p);
        total.Add(std::vector<float>{1});
        EXPECT_TRUE(total.finite());
        std::vector<std::int64_t> words;
        sum.AppendWords(words);
        total.AddWords(words);
        EXPECT_FALSE(total.finite());
        EXPECT_EQ(total.norm(), kInfinity);
      }
    }
  }
}

TEST(NormSum, ScalesAsTheGradientsAreScaled) {
  for (const double p : kAllP) {
    NormSum sum(p);
    sum.Add(std::vector<float>{3, -4, 1});
    EXPECT_DOUBLE_EQ(sum.norm(-0.5), 0.5 * sum.norm()) << p;
  }
}

TEST(NormSum, TheLargestFiniteGradientsHaveANorm) {
  const std::vector<float> values(1000, std::numeric_limits<float>::max());
  for (const double p : {1.0, 2.0, 4.0, 7.0, 20.0, 1000.0, kInfinity}) {
    NormSum sum(p);
    sum.Add(values);
    EXPECT_TRUE(sum.finite());
    const double expected = std::numeric_limits<float>::max() * std::pow(1000.0, 1 / p);
    EXPECT_NEAR(sum.norm(), expected, 1e-15 * expected) << p;
  }
}

// Powers that double cannot hold, in slices and ranks of very different sizes.
TEST(NormSum, ALargePNeitherOverflowsNorVanishes) {
  const auto near = [](double p, const std::vector<float>& values, double expected) {
    EXPECT_NEAR(NormOf(values, p), expected, 1e-14 * expected) << p;
    NormSum total(p);
    for (const float value : values) {
      NormSum rank(p);
      rank.Add(std::vector<float>{value});
      std::vector<std::int64_t> words;
      rank.AppendWords(words);
      total.AddWords(words);
    }
    EXPECT_NEAR(total.norm(), expected, 1e-14 * expected) << p;
    EXPECT_TRUE(total.finite());
  };
  const double small = 1e-4f;
  near(50, {1e7f, 1e7f, -1e7f}, 1e7 * std::pow(3.0, 1 / 50.0));
  near(100, {1e-4f, -1e-4f}, small * std::pow(2.0, 1 / 100.0));
  near(100, {0, 1e-4f, 0, 1e7f, 1e-30f}, 1e7);
  near(5.5, {1e-40f}, static_cast<double>(1e-40f));
  near(1e6, {3, 3}, 3 * std::pow(2.0, 1e-6));
  EXPECT_EQ(NormOf(std::vector<float>(70), 100), 0);
  EXPECT_GT(ClipFactor(NormOf(std::vector<float>(3, 1e7f), 50), 1), 0);
}

TEST(NormOptions, ABadPIsAnErrorThatNamesIt) {
  EXPECT_OK(NormOptions{.p = 1}.Validate());
  EXPECT_OK(NormOptions{.p = kInfinity}.Validate());
  EXPECT_THAT(NormOptions{.p = 0.5}.Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("p is 0.5; it must be at least 1")));
  EXPECT_THAT(NormOptions{.p = std::nan("")}.Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("p is nan")));
}

}  // namespace
}  // namespace ait
