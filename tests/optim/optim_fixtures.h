// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_OPTIM_OPTIM_FIXTURES_H_
#define AIT_TESTS_OPTIM_OPTIM_FIXTURES_H_

// Layouts, numbers and threads that the tests of optim share.

#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/simd.h"
#include "ait/base/types.h"
#include "ait/optim/executor.h"
#include "ait/optim/parameter_layout.h"

namespace ait::testing {

/// Vectors of these sizes, each beginning at a multiple of 64 elements; all of it owned. A
/// parameter of an even index has two dimensions, one of an odd index has one.
inline ParameterLayout LayoutOf(const std::vector<std::int64_t>& sizes) {
  ParameterLayout layout;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ParameterSegment parameter{
        .name = StrCat("p", i), .begin = RoundUp(end, 64), .shape = {sizes[i]}};
    if (i % 2 == 0) parameter.shape.push_back(1);
    end = parameter.range().end;
    layout.parameters.push_back(parameter);
  }
  layout.owned = {{0, RoundUp(end, 64)}};
  return layout;
}

inline std::vector<float> RandomFloats(std::int64_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

/// True if both have the same bits; NaNs are compared as bits too.
inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A new thread for every part, started in descending order.
inline Executor ThreadsOf(int threads) {
  return {.threads = threads, .run = [](int parts, const std::function<void(int)>& part) {
            std::vector<std::jthread> running;
            for (int i = parts - 1; i >= 0; --i) running.emplace_back(part, i);
          }};
}

inline const SimdLevel kAllSimdLevels[] = {SimdLevel::kBaseline, SimdLevel::kAvx2,
                                           SimdLevel::kAvx512};

}  // namespace ait::testing

#endif  // AIT_TESTS_OPTIM_OPTIM_FIXTURES_H_
