// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/state_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>

#include "ait/base/float16.h"
#include "ait/optim/adam.h"
#include "ait/optim/lion.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::kAllSimdLevels;
using ::ait::testing::LayoutOf;
using ::ait::testing::RandomFloats;
using ::ait::testing::SameBits;
using ::ait::testing::StatusIs;
using ::ait::testing::ThreadsOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr StateFormat k8bit = StateFormat::kBlockwise8bit;

std::int64_t BitsOf(float value) { return std::bit_cast<std::int32_t>(value); }

// The map of the header, from a code to its number.
double ValueOf(int code, int top, float absmax) {
  if (code == 0) return 0;
  const std::int64_t bits = BitsOf(absmax) - 4 * (BitsOf(static_cast<float>(top)) -
                                                  BitsOf(static_cast<float>(std::abs(code))));
  const double magnitude = std::bit_cast<float>(static_cast<std::int32_t>(bits));
  return code < 0 ? -magnitude : magnitude;
}

StateSlice Find(BoundOptimizer& bound, std::string_view state) {
  for (const StateSlice& slice : bound.State()) {
    if (slice.state == state) return slice;
  }
  ADD_FAILURE() << "no state " << state;
  return {};
}

// The moments of the first parameter, decoded.
std::vector<double> Decode(BoundOptimizer& bound, const std::string& name, bool is_signed) {
  const StateSlice codes = Find(bound, name);
  const auto absmax = Find(bound, name + "_absmax").floats();
  std::vector<double> values;
  for (std::size_t i = 0; i < codes.bytes.size(); ++i) {
    const int byte = static_cast<int>(codes.bytes[i]);
    values.push_back(is_signed ? ValueOf(static_cast<std::int8_t>(byte), 127, absmax[i / 64])
                               : ValueOf(byte, 255, absmax[i / 64]));
  }
  return values;
}

// One step of AdamW with β = 0 keeps the gradient and its square.
class Map : public ::testing::TestWithParam<SimdLevel> {
 protected:
  void Step(std::vector<float> gradients) {
    const ParameterLayout layout = LayoutOf({static_cast<std::int64_t>(gradients.size())});
    ASSERT_OK_AND_ASSIGN(bound_, (AdamW{{.beta1 = 0, .beta2 = 0, .state = k8bit}}.Bind(
                                     layout, {.max_simd_level = GetParam()})));
    std::vector<float> parameters(gradients.size());
    ASSERT_OK(bound_->BeginStep({}));
    ASSERT_OK(bound_->Update({.parameters = View(parameters), .gradients = View(gradients)}));
    means_ = Decode(*bound_, "exp_avg", true);
    squares_ = Decode(*bound_, "exp_avg_sq", false);
  }
  std::unique_ptr<BoundOptimizer> bound_;
  std::vector<double> means_, squares_;
};
INSTANTIATE_TEST_SUITE_P(All, Map, ::testing::ValuesIn(kAllSimdLevels),
                         [](const auto& level) { return std::string(Name(level.param)); });

TEST_P(Map, EveryNumberIsRoundedToACodeThatIsNear) {
  std::vector<float> gradients = RandomFloats(5000, 1);
  for (std::size_t i = 0; i < gradients.size(); i += 3) {
    gradients[i] *= std::ldexp(1.0f, -static_cast<int>(i % 25));
  }
  Step(gradients);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::size_t begin = i / 64 * 64, end = std::min(begin + 64, gradients.size());
    double absmax = 0;
    for (std::size_t j = begin; j < end; ++j)
      absmax = std::max(absmax, std::abs(static_cast<double>(gradients[j])));
    const double g = gradients[i];
    // Half of the largest step around a number: of a piece of the map, 4 codes of 2^s are an octave.
    const double x = std::abs(g) / absmax;
    ASSERT_NEAR(means_[i], g, absmax * std::max(0.07 * std::pow(x, 0.75), 1e-8)) << i;
    ASSERT_NEAR(squares_[i], g * g, absmax * absmax * std::max(0.035 * std::pow(x, 1.5), 3e-10))
        << i;
  }
}

TEST_P(Map, ZeroIsExactAndTheLargestOfABlockIsToo) {
  std::vector<float> gradients = RandomFloats(4096, 2);
  for (std::size_t i = 0; i < gradients.size(); i += 2) gradients[i] = 0;
  std::fill_n(gradients.begin() + 640, 64, 0.0f);  // a block of zeros
  Step(gradients);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == 0) {
      ASSERT_EQ(means_[i], 0) << i;
      ASSERT_EQ(squares_[i], 0) << i;
    }
  }
  const auto absmax = Find(*bound_, "exp_avg_absmax").floats();
  EXPECT_EQ(absmax[10], 0);
  for (std::size_t block = 0; block < 64; ++block) {
    double largest = 0, decoded = 0;
    for (std::size_t j = 64 * block; j < 64 * block + 64; ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(gradients[j])));
      decoded = std::max(decoded, std::abs(means_[j]));
    }
    EXPECT_EQ(decoded, largest) << block;
  }
}

TEST_P(Map, ASecondMomentThatIsNotZeroDoesNotBecomeZero) {
  std::vector<float> gradients(4096, 1e-12f);
  for (std::size_t i = 0; i < gradients.size(); i += 64) gradients[i] = 1.0f;
  Step(gradients);
  EXPECT_EQ(means_[1], 0) << "too small beside 1";
  EXPECT_GT(squares_[1], 0);
  EXPECT_EQ(squares_[64], 1);
  Step(std::vector<float>(4096, 1e-21f));  // squares are subnormal
  EXPECT_GT(squares_[1], 0);
  EXPECT_TRUE(std::isfinite(squares_[1]));
  EXPECT_NEAR(means_[1], 1e-21, 1e-22);
}

// What holds for every optimizer with 8-bit state.
class Blockwise : public ::testing::TestWithParam<std::shared_ptr<const Optimizer>> {
 protected:
  using Moments = std::map<std::string, std::vector<std::byte>>;
  struct Outcome {
    std::vector<float> parameters;
    Moments state;
    bool operator==(const Outcome& other) const {
      return SameBits(parameters, other.parameters) && state == other.state;
    }
  };

  Outcome Run(BindOptions options, std::vector<std::vector<ElementRange>> owners,
              std::int64_t slice_elements = 1 << 30) {
    Outcome outcome{.parameters = RandomFloats(size(), 1)};
    for (const std::vector<ElementRange>& owned : owners) {
      ParameterLayout layout = layout_;
      layout.owned = owned;
      auto bound = GetParam()->Bind(layout, options);
      EXPECT_OK(bound);
      for (unsigned step = 0; step < 5; ++step) {
        std::vector<float> gradients = RandomFloats(size(), 100 + step);
        EXPECT_OK((*bound)->BeginStep({.gradient_scale = 0.25}));
        for (const ElementRange& range : owned) {
          for (std::int64_t at = range.begin; at < range.end; at += slice_elements) {
            const std::int64_t count = std::min(slice_elements, range.end - at);
            EXPECT_OK((*bound)->Update({.begin = at,
                                        .parameters = View(outcome.parameters).Slice(at, count),
                                        .gradients = View(gradients).Slice(at, count)}));
          }
        }
      }
      for (const StateSlice& slice : (*bound)->State()) {
        auto& bytes =
            outcome.state[StrCat(slice.parameter, "/", slice.state, "/", Name(slice.dtype))];
        const auto begin = static_cast<std::size_t>(slice.begin * SizeOf(slice.dtype));
        bytes.resize(std::max(bytes.size(), begin + slice.bytes.size()));
        std::ranges::copy(slice.bytes, bytes.begin() + static_cast<std::ptrdiff_t>(begin));
      }
    }
    return outcome;
  }

  std::int64_t size() const { return layout_.owned[0].end; }
  ParameterLayout layout_ = LayoutOf({4096, 65, 4095, 5000, 20'011});
};

INSTANTIATE_TEST_SUITE_P(
    All, Blockwise,
    ::testing::Values(std::make_shared<AdamW>(AdamWOptions{.state = k8bit}),
                      std::make_shared<Adam>(AdamOptions{.weight_decay = 0.1, .state = k8bit}),
                      std::make_shared<Lion>(LionOptions{.weight_decay = 0.1, .state = k8bit})),
    [](const auto& instance) { return StrCat(instance.param->name(), "_", instance.index); });

TEST_P(Blockwise, ShardsSlicesThreadsAndSimdLevelsGiveTheSameBits) {
  const Outcome whole = Run({}, {layout_.owned});
  for (SimdLevel level : kAllSimdLevels) {
    EXPECT_TRUE(Run({.max_simd_level = level}, {layout_.owned}) == whole) << Name(level);
  }
  EXPECT_TRUE(Run({.executor = ThreadsOf(3)}, {layout_.owned}) == whole);
  EXPECT_TRUE(Run({}, {layout_.owned}, 192) == whole);
  EXPECT_TRUE(Run({}, {{{0, 64}, {128, 9024}}, {{64, 128}, {9024, 16'000}}, {{16'000, size()}}}) ==
              whole);
}

TEST_P(Blockwise, GradientsBelowFp32GoThroughTheSameBlocks) {
  // bf16 numbers as fp32 and as bf16.
  std::vector<float> wide = RandomFloats(5000, 3);
  std::vector<BFloat16> narrow;
  for (float& x : wide) {
    narrow.emplace_back(x);
    x = static_cast<float>(narrow.back());
  }
  std::vector<std::vector<float>> results;
  for (const Buffer& gradients : {View(wide), View(narrow)}) {
    ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(LayoutOf({5000})));
    results.push_back(RandomFloats(5000, 1));
    for (int step = 0; step < 3; ++step) {
      ASSERT_OK(bound->BeginStep({}));
      ASSERT_OK(bound->Update({.parameters = View(results.back()), .gradients = gradients}));
    }
  }
  EXPECT_TRUE(SameBits(results[0], results[1]));
}

TEST_P(Blockwise, StateHasDTypesOfItsOwnAndSmallParametersStayFp32) {
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  std::int64_t bytes = 0;
  for (const StateSlice& slice : bound->State()) {
    const bool small = slice.parameter == "p1" || slice.parameter == "p2";
    const bool scales = slice.state.ends_with("_absmax");
    EXPECT_EQ(slice.dtype, small || scales ? DType::kFloat32 : DType::kUInt8) << slice.state;
    EXPECT_FALSE(small && scales);
    EXPECT_EQ(slice.block, scales ? 64 : 1);
    if (slice.parameter == "p4") bytes += static_cast<std::int64_t>(slice.bytes.size());
  }
  const auto moments = static_cast<std::int64_t>(GetParam()->state_names().size()) / 2;
  EXPECT_EQ(bytes, moments * (20'011 + 4 * 313));
  EXPECT_LE(bound->state_bytes(), moments * (29'200 * 17 / 16 + 4200 * 4 + 512));
}

TEST_P(Blockwise, CutsInsideABlockAreRefused) {
  ParameterLayout layout = layout_;
  layout.owned = {{0, 100}, {100, 4096}};
  EXPECT_THAT(GetParam()->Bind(layout),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"p0\""), HasSubstr("multiples of 64"))));
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  std::vector<float> numbers(4096);
  ASSERT_OK(bound->BeginStep({}));
  EXPECT_THAT(bound->Update({.begin = 0,
                             .parameters = View(numbers).Slice(0, 100),
                             .gradients = View(numbers).Slice(0, 100)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cuts parameter \"p0\"")));
}

TEST(Blockwise, TrainsAsFp32StateDoes) {
  // A quadratic with curvatures from 1 to 10^-4, noisy gradients.
  const auto loss_after = [](const Optimizer& optimizer) {
    const ParameterLayout layout = LayoutOf({8192});
    auto bound = *optimizer.Bind(layout);
    std::vector<float> x = RandomFloats(8192, 1), g(8192);
    const auto curvature = [](std::size_t i) {
      return std::pow(10.0, -static_cast<double>(i % 97) / 24.0);
    };
    for (unsigned step = 0; step < 400; ++step) {
      const std::vector<float> noise = RandomFloats(8192, 1000 + step, 0.1f);
      for (std::size_t i = 0; i < x.size(); ++i)
        g[i] = static_cast<float>(curvature(i) * (x[i] + noise[i]));
      EXPECT_OK(bound->BeginStep({.learning_rate_factor = 1 - step / 400.0}));
      EXPECT_OK(bound->Update({.parameters = View(x), .gradients = View(g)}));
    }
    double loss = 0;
    for (std::size_t i = 0; i < x.size(); ++i) loss += curvature(i) * x[i] * x[i] / 2;
    return loss;
  };
  const double at_start = 8192 * 0.12 / 2;
  const double fp32 = loss_after(AdamW{{.learning_rate = 1e-2, .weight_decay = 0}});
  const double adamw =
      loss_after(AdamW{{.learning_rate = 1e-2, .weight_decay = 0, .state = k8bit}});
  RecordProperty("losses", StrCat(fp32, " ", adamw));
  EXPECT_LT(fp32, at_start / 10);
  EXPECT_LT(adamw, 1.2 * fp32);
  const double lion_fp32 = loss_after(Lion{{.learning_rate = 1e-2}});
  EXPECT_LT(loss_after(Lion{{.learning_rate = 1e-2, .state = k8bit}}), 1.2 * lion_fp32);
}

TEST(Blockwise, AmsgradIsRefused) {
  EXPECT_THAT((AdamW{{.variant = AdamVariant::kAmsgrad, .state = k8bit}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("adamw: AMSGrad")));
}

}  // namespace
}  // namespace ait
