// SPDX-License-Identifier: Apache-2.0
// The check of `ait bench comm` must be able to fail: what it expects is compared with sums made here, and
// damage of one element is counted.
#include "cli/comm_bench_data.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ait/base/float16.h"

namespace ait::cli {
namespace {

TEST(CommBenchData, RanksAndPlacesDiffer) {
  for (int rank = 0; rank < 3; ++rank) {
    int differs = 0;
    for (std::int64_t i = 0; i < 100; ++i) {
      differs += GivenElement(rank, i, 4, DType::kFloat32, {}) !=
                 GivenElement(rank + 1, i, 4, DType::kFloat32, {});
    }
    EXPECT_GT(differs, 90);
  }
}

TEST(CommBenchData, ReducesAsTheReductionsSay) {
  for (std::int64_t i = 0; i < 30; ++i) {
    double sum = 0, product = 1, most = -100, least = 100;
    for (int rank = 0; rank < 5; ++rank) {
      const double x = GivenElement(rank, i, 5, DType::kFloat32, ReduceOp::kSum);
      sum += x;
      most = std::max(most, x);
      least = std::min(least, x);
      product *= GivenElement(rank, i, 5, DType::kFloat32, ReduceOp::kProduct);
    }
    EXPECT_EQ(ReducedElement(i, 5, DType::kFloat32, ReduceOp::kSum), sum);
    EXPECT_EQ(ReducedElement(i, 5, DType::kFloat32, ReduceOp::kAverage), sum / 5);
    EXPECT_EQ(ReducedElement(i, 5, DType::kFloat32, ReduceOp::kMax), most);
    EXPECT_EQ(ReducedElement(i, 5, DType::kFloat32, ReduceOp::kMin), least);
    EXPECT_EQ(ReducedElement(i, 5, DType::kFloat32, ReduceOp::kProduct), product);
    EXPECT_EQ(product, 2);
  }
}

TEST(CommBenchData, CountsWrongElements) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<std::byte> memory(100 * static_cast<std::size_t>(SizeOf(dtype)));
    const Buffer x{memory.data(), 100, dtype};
    const auto value = [](std::int64_t at) { return static_cast<double>(at % 2); };
    Fill(x, value);
    EXPECT_EQ(CountWrong(x, value), 0) << Name(dtype);
    EXPECT_EQ(CountWrong(x, [&](std::int64_t at) { return at == 7 ? 0 : value(at); }), 1);
    EXPECT_EQ(CountWrong(x, [](std::int64_t) { return 0.0; }), 50) << Name(dtype);
  }
}

TEST(CommBenchData, IntegersWrapAroundAndHalvesRound) {
  std::vector<std::int8_t> small = {-128};
  EXPECT_EQ(CountWrong(View(small), [](std::int64_t) { return 128.0; }), 0);
  std::vector<BFloat16> rounded = {BFloat16(1.0f / 3)};
  EXPECT_EQ(CountWrong(View(rounded), [](std::int64_t) { return 1.0 / 3; }), 0);
}

}  // namespace
}  // namespace ait::cli
