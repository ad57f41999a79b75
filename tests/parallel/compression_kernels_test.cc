// SPDX-License-Identifier: Apache-2.0
#include "parallel/compression_kernels_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "support/status_matchers.h"

namespace ait::internal::compression {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::vector<float> Random(std::size_t count, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = scale * static_cast<float>(static_cast<double>(random()) / 0x80000000p0 - 1);
  }
  return values;
}

TEST(Dot, IsThatOfDoublesForAnyLength) {
  for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 511u, 512u, 513u, 5000u}) {
    const auto a = Random(count, 1), b = Random(count, 2);
    double exact = 0;
    for (std::size_t i = 0; i < count; ++i) exact += double{a[i]} * double{b[i]};
    EXPECT_NEAR(Dot(a, b), exact, 1e-5 * static_cast<double>(count + 1)) << count;
  }
}

TEST(Many, AreTheBitsOfOneByOne) {
  for (const std::size_t many : {1u, 2u, 4u, 7u}) {
    for (const std::size_t n : {3u, 64u, 1300u}) {
      const auto row = Random(n, 20);
      const auto vectors = Random(many * n, 21);
      const auto factors = Random(many, 22);
      const auto vector = [n](auto& all, std::size_t k) {
        return std::span(all).subspan(k * n, n);
      };
      std::vector<double> dots(many);
      DotMany(row, vectors, dots);
      auto together = row;
      AddManyScaled(together, factors, vectors);
      auto one_by_one = row;
      auto added = vectors;
      AddScaledToMany(added, factors, row);
      auto added_one_by_one = vectors;
      for (std::size_t k = 0; k < many; ++k) {
        EXPECT_EQ(dots[k], Dot(row, vector(vectors, k)));
        AddScaled(one_by_one, factors[k], vector(vectors, k));
        AddScaled(vector(added_one_by_one, k), factors[k], row);
      }
      EXPECT_EQ(together, one_by_one);
      EXPECT_EQ(added, added_one_by_one);
    }
  }
}

TEST(RoundToBf16, RoundsLikeBFloat16AndTellsWhatIsLost) {
  const auto values = Random(1000, 3);
  std::vector<BFloat16> half(values.size());
  const double lost = RoundToBf16(values, half);
  std::vector<float> wide(values.size());
  WidenBf16(half, wide);
  double expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(half[i].bits, BFloat16(values[i]).bits);
    EXPECT_EQ(wide[i], static_cast<float>(half[i]));
    expected += std::pow(double{values[i]} - double{wide[i]}, 2);
  }
  EXPECT_NEAR(lost, expected, 1e-4 * expected);
}

TEST(Quantise, ErrsByHalfAStepAtMost) {
  for (const float scale : {1.0f, 1e-30f, 1e30f}) {
    const auto values = Random(320, 4, scale);
    std::vector<std::int8_t> codes(values.size());
    std::vector<float> error(values.size()), decoded(values.size());
    const float step = Quantise(values, codes, error);
    EXPECT_FLOAT_EQ(step, LargestMagnitude(values) / 127);
    Dequantise(codes, step, decoded);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(std::abs(values[i] - decoded[i]), 0.5001f * step);
      EXPECT_EQ(error[i], values[i] - decoded[i]);
    }
    EXPECT_EQ(*std::ranges::max_element(codes, {}, [](int c) { return std::abs(c); }) % 127, 0);
    std::vector<float> sum = values;
    AddDequantised(codes, step, sum);
    EXPECT_EQ(sum[7], values[7] + decoded[7]);
  }
}

TEST(Quantise, KeepsTheErrorInPlace) {
  auto values = Random(64, 5);
  const auto before = values;
  std::vector<std::int8_t> codes(64);
  std::vector<float> decoded(64);
  const float step = Quantise(values, codes, values);
  Dequantise(codes, step, decoded);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], before[i] - decoded[i]);
}

TEST(Quantise, GivesBackAllOfABlockThatIsTooSmallToScale) {
  for (const float tiny : {0.0f, 1e-40f, 1e-37f}) {
    const std::vector<float> values(64, tiny);
    std::vector<std::int8_t> codes(64, 9);
    std::vector<float> error(64, 9);
    EXPECT_EQ(Quantise(values, codes, error), 0);
    EXPECT_EQ(codes, std::vector<std::int8_t>(64));
    EXPECT_EQ(error, values);
  }
}

TEST(Quantise, MakesABlockThatIsNotFiniteNan) {
  for (const float bad : {kNan, -kNan, kInfinite, -kInfinite}) {
    auto values = Random(64, 6);
    values[40] = bad;
    std::vector<std::int8_t> codes(64, 9);
    std::vector<float> error(64, 9), decoded(64);
    const float scale = Quantise(values, codes, error);
    Dequantise(codes, scale, decoded);
    EXPECT_TRUE(std::ranges::all_of(decoded, [](float f) { return std::isnan(f); }));
    EXPECT_EQ(error, std::vector<float>(64)) << "must not reach the next step";
  }
}

TEST(SelectLargest, IsThatOfASort) {
  for (const std::size_t size : {1u, 7u, 1000u, 70000u}) {
    auto values = Random(size, 7);
    for (std::size_t i = 0; i < size; i += 3) values[i] = std::round(4 * values[i]) / 4;  // ties
    std::vector<std::uint32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(
        order, [&](auto a, auto b) { return std::abs(values[a]) > std::abs(values[b]); });
    SelectScratch scratch;
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, size / 100, size / 2, size}) {
      std::vector<std::uint32_t> expected(order.begin(),
                                          order.begin() + static_cast<std::ptrdiff_t>(count));
      std::ranges::sort(expected);
      for (auto& index : expected) index += 5;
      std::vector<std::uint32_t> indices = {99};
      SelectLargest(values, static_cast<std::int64_t>(count), 5, scratch, indices);
      expected.insert(expected.begin(), 99);
      EXPECT_EQ(indices, expected) << count << " of " << size;
    }
  }
}

TEST(SelectLargest, PutsNanFirst) {
  SelectScratch scratch;
  std::vector<std::uint32_t> indices;
  SelectLargest(std::vector<float>{1, kInfinite, 3, -kNan}, 1, 0, scratch, indices);
  EXPECT_EQ(indices, std::vector<std::uint32_t>{3});
}

TEST(Orthonormalise, MakesVectorsOfNormOneAtRightAngles) {
  for (const float scale : {1.0f, 1e-25f, 1e25f}) {
    auto vectors = Random(5 * 100, 8, scale);
    Orthonormalise(vectors, 100);
    const std::span<const float> all(vectors);
    for (std::size_t a = 0; a < 5; ++a) {
      for (std::size_t b = 0; b < 5; ++b) {
        EXPECT_NEAR(Dot(all.subspan(100 * a, 100), all.subspan(100 * b, 100)), a == b, 1e-6);
      }
    }
  }
}

TEST(Orthonormalise, DropsVectorsThatDependOnOthers) {
  auto vectors = Random(100, 9);
  const auto first = vectors;
  for (const float factor : {-2.0f, 0.0f}) {
    for (const float value : first) vectors.push_back(factor * value);
  }
  const auto other = Random(100, 10);
  vectors.insert(vectors.end(), other.begin(), other.end());
  Orthonormalise(vectors, 100);
  const std::span<const float> all(vectors);
  EXPECT_NEAR(Squares(all.first(100)), 1, 1e-6);
  EXPECT_EQ(Squares(all.subspan(100, 200)), 0);
  EXPECT_NEAR(Squares(all.last(100)), 1, 1e-6);
}

TEST(Orthonormalise, HidesNothingThatIsNotFinite) {
  for (const float bad : {kNan, kInfinite}) {
    auto vectors = Random(3 * 50, 11);
    vectors[60] = bad;
    Orthonormalise(vectors, 50);
    EXPECT_NEAR(Squares(std::span<const float>(vectors).first(50)), 1, 1e-6);
    EXPECT_TRUE(std::isnan(vectors[50]) && std::isnan(vectors[149]));
  }
}

TEST(LargestMagnitude, IsTheLargestOrNotFinite) {
  EXPECT_EQ(LargestMagnitude({}), 0);
  EXPECT_EQ(LargestMagnitude(std::vector<float>{1, -3, 2}), 3);
  EXPECT_EQ(LargestMagnitude(std::vector<float>{1, -kInfinite, 2}), kInfinite);
  EXPECT_TRUE(std::isnan(LargestMagnitude(std::vector<float>{kInfinite, -kNan, 2})));
}

}  // namespace
}  // namespace ait::internal::compression
