// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ait/base/float16.h"

namespace ait {
namespace {

using internal::ReduceRanks;

/// Reduces the rows of `inputs` into two fresh outputs and returns one, after checking that the
/// other is equal bit for bit.
template <typename T>
std::vector<T> Reduce(const std::vector<std::vector<T>>& inputs, DType dtype, ReduceOp op) {
  std::vector<const void*> in;
  for (const auto& input : inputs) in.push_back(input.data());
  std::vector<T> a(inputs[0].size());
  std::vector<T> b(inputs[0].size());
  std::vector<void*> out = {a.data(), b.data()};
  ReduceRanks(in, out, static_cast<std::int64_t>(a.size()), dtype, op);
  EXPECT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
  return a;
}

template <typename T>
std::vector<std::vector<T>> RandomRows(std::size_t rows, std::size_t size) {
  std::mt19937_64 random(rows * 1000 + size);
  std::vector<std::vector<T>> result(rows, std::vector<T>(size));
  for (auto& row : result) {
    for (T& x : row) {
      if constexpr (std::is_integral_v<T>) {
        x = static_cast<T>(random());
      } else {
        x = static_cast<T>(std::uniform_real_distribution<float>(-2, 2)(random));
      }
    }
  }
  return result;
}

constexpr std::size_t kSizes[] = {0, 1, 7, 2047, 2048, 2049, 5000};

/// Integers wrap around: the oracle computes in 64 unsigned bits and cuts.
template <typename T>
void CheckIntegers() {
  for (std::size_t rows = 1; rows <= 5; ++rows) {
    for (const std::size_t size : kSizes) {
      const auto inputs = RandomRows<T>(rows, size);
      const auto sum = Reduce(inputs, kDTypeOf<T>, ReduceOp::kSum);
      const auto product = Reduce(inputs, kDTypeOf<T>, ReduceOp::kProduct);
      const auto max = Reduce(inputs, kDTypeOf<T>, ReduceOp::kMax);
      const auto min = Reduce(inputs, kDTypeOf<T>, ReduceOp::kMin);
      for (std::size_t i = 0; i < size; ++i) {
        std::uint64_t s = 0;
        std::uint64_t p = 1;
        T high = inputs[0][i];
        T low = inputs[0][i];
        for (const auto& row : inputs) {
          s += static_cast<std::uint64_t>(row[i]);
          p *= static_cast<std::uint64_t>(row[i]);
          high = std::max(high, row[i]);
          low = std::min(low, row[i]);
        }
        ASSERT_EQ(sum[i], static_cast<T>(s)) << rows << " rows, element " << i;
        ASSERT_EQ(product[i], static_cast<T>(p));
        ASSERT_EQ(max[i], high);
        ASSERT_EQ(min[i], low);
      }
    }
  }
}

TEST(ReduceRanks, IntegersOfEveryWidthWrapAround) {
  CheckIntegers<std::uint8_t>();
  CheckIntegers<std::int8_t>();
  CheckIntegers<std::uint16_t>();
  CheckIntegers<std::int16_t>();
  CheckIntegers<std::uint32_t>();
  CheckIntegers<std::int32_t>();
  CheckIntegers<std::int64_t>();
}

/// Floating point: the oracle goes rank by rank in type A and rounds to T once. Equal in bits.
template <typename T, typename A>
void CheckFloats() {
  for (std::size_t rows = 1; rows <= 8; ++rows) {
    for (const std::size_t size : kSizes) {
      const auto inputs = RandomRows<T>(rows, size);
      const auto sum = Reduce(inputs, kDTypeOf<T>, ReduceOp::kSum);
      const auto average = Reduce(inputs, kDTypeOf<T>, ReduceOp::kAverage);
      const auto product = Reduce(inputs, kDTypeOf<T>, ReduceOp::kProduct);
      const auto max = Reduce(inputs, kDTypeOf<T>, ReduceOp::kMax);
      const auto min = Reduce(inputs, kDTypeOf<T>, ReduceOp::kMin);
      for (std::size_t i = 0; i < size; ++i) {
        A s = static_cast<A>(inputs[0][i]);
        A p = s;
        A high = s;
        A low = s;
        for (std::size_t r = 1; r < rows; ++r) {
          const A x = static_cast<A>(inputs[r][i]);
          s = s + x;
          p = p * x;
          high = std::fmax(high, x);
          low = std::fmin(low, x);
        }
        const auto equal = [](T seen, A expected) {
          const T rounded = static_cast<T>(expected);
          return std::memcmp(&seen, &rounded, sizeof(T)) == 0;
        };
        ASSERT_TRUE(equal(sum[i], s)) << rows << " rows, element " << i;
        ASSERT_TRUE(equal(average[i], s / static_cast<A>(rows)));
        ASSERT_TRUE(equal(product[i], p));
        ASSERT_TRUE(equal(max[i], high));
        ASSERT_TRUE(equal(min[i], low));
      }
    }
  }
}

TEST(ReduceRanks, FloatsInRankOrderRoundedOnce) {
  CheckFloats<float, float>();
  CheckFloats<double, double>();
  CheckFloats<BFloat16, float>();
  CheckFloats<Float16, float>();
}

TEST(ReduceRanks, TheOrderIsThatOfTheInputs) {
  EXPECT_EQ(Reduce<float>({{1e8f}, {1}, {-1e8f}}, DType::kFloat32, ReduceOp::kSum)[0], 0);
  EXPECT_EQ(Reduce<float>({{1e8f}, {-1e8f}, {1}}, DType::kFloat32, ReduceOp::kSum)[0], 1);
}

TEST(ReduceRanks, SixteenBitSumsKeepWhatRoundingEachStepWouldLose) {
  // 256 + 1 is no bfloat16: rounded at each step the ones would vanish.
  std::vector<std::vector<BFloat16>> rows(8, {BFloat16(1.0f)});
  rows[0][0] = BFloat16(256.0f);
  EXPECT_EQ(static_cast<float>(Reduce(rows, DType::kBFloat16, ReduceOp::kSum)[0]), 264.0f);
  // The sum of 60000 + 60000 is no finite float16, the average is.
  const std::vector<std::vector<Float16>> large(2, {Float16(60000.0f)});
  EXPECT_EQ(static_cast<float>(Reduce(large, DType::kFloat16, ReduceOp::kAverage)[0]),
            static_cast<float>(Float16(60000.0f)));
}

template <typename T>
void CheckNan() {
  const T nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  const T one = static_cast<T>(1.0f);
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum, ReduceOp::kProduct}) {
    for (std::size_t at = 0; at < 3; ++at) {
      std::vector<std::vector<T>> rows(3, {one, one});
      rows[at][1] = nan;
      const std::vector<T> result = Reduce(rows, kDTypeOf<T>, op);
      EXPECT_FALSE(std::isnan(static_cast<float>(result[0])));
      EXPECT_TRUE(std::isnan(static_cast<float>(result[1]))) << Name(op) << ", rank " << at;
    }
  }
}

TEST(ReduceRanks, NanOfOneRankReachesTheResult) {
  CheckNan<float>();
  CheckNan<double>();
  CheckNan<BFloat16>();
  CheckNan<Float16>();
}

TEST(ReduceRanks, BoolIsOrAndAnd) {
  const std::vector<std::vector<std::uint8_t>> rows = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  const std::vector<std::uint8_t> either = {0, 1, 1, 1};
  const std::vector<std::uint8_t> both = {0, 0, 0, 1};
  EXPECT_EQ(Reduce(rows, DType::kBool, ReduceOp::kSum), either);
  EXPECT_EQ(Reduce(rows, DType::kBool, ReduceOp::kMax), either);
  EXPECT_EQ(Reduce(rows, DType::kBool, ReduceOp::kProduct), both);
  EXPECT_EQ(Reduce(rows, DType::kBool, ReduceOp::kMin), both);
}

TEST(ReduceRanks, InPlaceInEveryInput) {
  auto rows = RandomRows<float>(3, 5000);
  const std::vector<float> expected = Reduce(rows, DType::kFloat32, ReduceOp::kSum);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (auto& row : rows) {
    in.push_back(row.data());
    out.push_back(row.data());
  }
  ReduceRanks(in, out, 5000, DType::kFloat32, ReduceOp::kSum);
  for (const auto& row : rows) EXPECT_EQ(row, expected);
}

}  // namespace
}  // namespace ait
