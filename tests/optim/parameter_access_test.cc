// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ait/base/float16.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::kAllSimdLevels;
using ::ait::testing::RandomFloats;
using ::ait::testing::SameBits;
using ::ait::testing::StatusIs;
using internal::ParameterAccess;
using internal::StochasticKey;
using ::testing::HasSubstr;

std::uint32_t BitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }
float Bf16Of(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// Every class of number: zeros, subnormals, halves of a bf16 and fp16 step, the largest, infinities,
// and any bits at all that are not a NaN.
std::vector<float> Values() {
  std::vector<float> values = RandomFloats(1000, 1);
  std::mt19937 random(2);
  while (values.size() < 20'011) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(value)) values.push_back(value);
  }
  for (std::uint32_t high :
       {0u, 1u, 0x3f80u, 0x3f81u, 0x7f7fu, 0x0080u, 0x477fu, 0x3880u, 0x387fu}) {
    for (std::uint32_t low :
         {0u, 1u, 0x1000u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xe000u, 0xf000u, 0xffffu}) {
      for (std::uint32_t sign : {0u, 0x80000000u}) {
        values.push_back(std::bit_cast<float>(sign | high << 16 | low));
      }
    }
  }
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  return values;
}

struct Kept {
  std::vector<std::uint16_t> parameters;
  std::vector<float> beside;  // 4 bytes an element: enough for any
};

ParameterAccess AccessOf(DType dtype, Masters masters, SimdLevel level, std::uint64_t seed = 0) {
  auto access = ParameterAccess::Create(
      {.max_simd_level = level, .parameter_dtype = dtype, .masters = masters, .seed = seed});
  EXPECT_OK(access);
  return *access;
}

Kept Write(const ParameterAccess& access, const std::vector<float>& values,
           std::int64_t element = 0) {
  Kept kept{std::vector<std::uint16_t>(values.size()), std::vector<float>(values.size())};
  access.Write(values.data(), element, kept.parameters.data(), kept.beside.data(),
               static_cast<std::int64_t>(values.size()));
  return kept;
}

std::vector<float> Read(const ParameterAccess& access, const Kept& kept) {
  std::vector<float> values(kept.parameters.size());
  access.Read(kept.parameters.data(), kept.beside.data(), values.data(),
              static_cast<std::int64_t>(values.size()));
  return values;
}

class EveryLevel : public ::testing::TestWithParam<SimdLevel> {};
INSTANTIATE_TEST_SUITE_P(All, EveryLevel, ::testing::ValuesIn(kAllSimdLevels),
                         [](const auto& level) { return std::string(Name(level.param)); });

TEST_P(EveryLevel, WithoutMastersRoundsToTheNearestAndHalvesToEven) {
  const std::vector<float> values = Values();
  const Kept bf16 = Write(AccessOf(DType::kBFloat16, Masters::kNone, GetParam()), values);
  const Kept fp16 = Write(AccessOf(DType::kFloat16, Masters::kNone, GetParam()), values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(bf16.parameters[i], BFloat16(values[i]).bits) << values[i];
    ASSERT_EQ(fp16.parameters[i], Float16(values[i]).bits) << values[i];
  }
}

TEST_P(EveryLevel, ReadsEverySixteenBitFloat) {
  Kept all{std::vector<std::uint16_t>(1 << 16), {}};
  for (std::size_t i = 0; i < all.parameters.size(); ++i) {
    all.parameters[i] = static_cast<std::uint16_t>(i);
  }
  const auto bf16 = Read(AccessOf(DType::kBFloat16, Masters::kNone, GetParam()), all);
  const auto fp16 = Read(AccessOf(DType::kFloat16, Masters::kNone, GetParam()), all);
  for (std::size_t i = 0; i < all.parameters.size(); ++i) {
    ASSERT_EQ(BitsOf(bf16[i]), i << 16);
    Float16 half;
    half.bits = static_cast<std::uint16_t>(i);
    ASSERT_EQ(BitsOf(fp16[i]), BitsOf(static_cast<float>(half))) << i;
  }
}

TEST_P(EveryLevel, AMasterIsKeptAndItsParameterRoundsHalvesAwayFromZero) {
  const std::vector<float> values = Values();
  const ParameterAccess access = AccessOf(DType::kBFloat16, Masters::kFloat32, GetParam());
  const Kept kept = Write(access, values);
  EXPECT_TRUE(SameBits(Read(access, kept), values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      ASSERT_EQ(Bf16Of(kept.parameters[i]), values[i]);
      continue;
    }
    // The two bf16 numbers around it; halfway or above, the one away from zero.
    const float toward = std::bit_cast<float>(BitsOf(values[i]) & 0xffff0000u);
    const float away = std::bit_cast<float>((BitsOf(values[i]) & 0xffff0000u) + 0x10000u);
    const bool halfway_or_above = (BitsOf(values[i]) & 0xffffu) >= 0x8000u;
    ASSERT_EQ(Bf16Of(kept.parameters[i]), halfway_or_above ? away : toward) << values[i];
  }
}

TEST_P(EveryLevel, AParameterAndItsRemainderAreTheBitsOfTheMaster) {
  const std::vector<float> values = Values();
  const ParameterAccess access = AccessOf(DType::kBFloat16, Masters::kRemainder, GetParam());
  const Kept kept = Write(access, values);
  EXPECT_TRUE(SameBits(Read(access, kept), values));
  EXPECT_EQ(kept.parameters,
            Write(AccessOf(DType::kBFloat16, Masters::kFloat32, GetParam()), values).parameters);
}

TEST_P(EveryLevel, ACompensatedParameterHasSixteenBitsOfMantissa) {
  std::vector<float> values = Values();
  // Where neither the sum overflows nor the compensation is subnormal.
  std::erase_if(values, [](float x) { return std::abs(x) > 3e38f || std::abs(x) < 1e-30f; });
  const ParameterAccess access = AccessOf(DType::kBFloat16, Masters::kKahan, GetParam());
  const Kept kept = Write(access, values);
  const std::vector<float> read = Read(access, kept);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(kept.parameters[i], BFloat16(values[i]).bits);
    ASSERT_NEAR(read[i], values[i], std::abs(values[i]) * 0x1p-16f);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Read(access, Write(access, {infinity, -infinity})),
              ::testing::ElementsAre(infinity, -infinity));
}

// The documented formulas once more, in plain integers.
std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
std::uint16_t RoundedBy(float value, std::uint64_t seed, std::uint64_t step,
                        std::uint64_t element) {
  const std::uint64_t key = Mix(Mix(Mix(seed) ^ step) ^ (element >> 32));
  std::uint64_t x = (element ^ key) & 0xffffffffu;
  x = ((x ^ (x >> 16)) * 0x7feb352du) & 0xffffffffu;
  x ^= key >> 32;
  x = ((x ^ (x >> 15)) * 0x846ca68bu) & 0xffffffffu;
  return static_cast<std::uint16_t>((BitsOf(value) + (x >> 16)) >> 16);
}

TEST_P(EveryLevel, StochasticRoundingIsTheDocumentedFunctionOfSeedStepAndElement) {
  std::vector<float> values = RandomFloats(3001, 1);
  ParameterAccess access = AccessOf(DType::kBFloat16, Masters::kStochastic, GetParam(), 77);
  access.BeginStep(5);
  constexpr std::int64_t kFirst = (std::int64_t{3} << 32) - 1000;  // passes a multiple of 2^32
  const Kept kept = Write(access, values, kFirst);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(kept.parameters[i], RoundedBy(values[i], 77, 5, kFirst + i)) << i;
  }
}

TEST(ParameterAccess, StochasticRoundingIsRightOnAverageAndLeavesBf16NumbersAlone) {
  const float low = 1.0f;
  const float high = Bf16Of(0x3f81);
  for (double share : {0.0, 0.1, 0.5, 0.9}) {
    const auto value = static_cast<float>(low + share * (high - low));
    const std::vector<float> values(100'000, value);
    ParameterAccess access =
        AccessOf(DType::kBFloat16, Masters::kStochastic, SimdLevel::kAvx512, 1);
    access.BeginStep(1);
    const Kept kept = Write(access, values);
    const auto up = std::ranges::count(kept.parameters, 0x3f81);
    EXPECT_EQ(up + std::ranges::count(kept.parameters, 0x3f80), 100'000);
    EXPECT_NEAR(static_cast<double>(up), share * 1e5, 4 * std::sqrt(1e5 * share * (1 - share)));
  }
}

TEST(ParameterAccess, StochasticRoundingKeepsInfinitiesAndSetsToTheNearest) {
  const float infinity = std::numeric_limits<float>::infinity();
  ParameterAccess access = AccessOf(DType::kBFloat16, Masters::kStochastic, SimdLevel::kAvx512);
  access.BeginStep(1);
  EXPECT_THAT(Write(access, {infinity, -infinity}).parameters,
              ::testing::ElementsAre(0x7f80, 0xff80));
  const std::vector<float> values = RandomFloats(1000, 3);
  std::vector<std::uint16_t> set(values.size());
  access.Set(values.data(), set.data(), nullptr, 1000);
  for (std::size_t i = 0; i < set.size(); ++i) EXPECT_EQ(set[i], BFloat16(values[i]).bits);
}

TEST(ParameterAccess, KeysDifferBySeedStepAndBlock) {
  const auto key = [](auto... arguments) {
    const StochasticKey k = internal::StochasticKeyOf(arguments...);
    return std::pair(k.first, k.second);
  };
  EXPECT_NE(key(0, 1, 0), key(0, 2, 0));
  EXPECT_NE(key(0, 1, 0), key(1, 1, 0));
  EXPECT_NE(key(0, 1, 0), key(0, 1, 1));
}

TEST(ParameterAccess, ANaNStaysOne) {
  const std::vector<float> values(40, std::bit_cast<float>(0x7fffffffu));
  for (Masters masters : {Masters::kFloat32, Masters::kRemainder, Masters::kKahan,
                          Masters::kStochastic, Masters::kNone}) {
    const ParameterAccess access = AccessOf(DType::kBFloat16, masters, SimdLevel::kAvx512);
    const Kept kept = Write(access, values);
    EXPECT_TRUE(std::isnan(Bf16Of(kept.parameters[0]))) << Name(masters);
    EXPECT_TRUE(std::isnan(Read(access, kept)[39])) << Name(masters);
  }
}

TEST(ParameterAccess, MastersThatADTypeHasNotAreRefused) {
  EXPECT_THAT(
      ParameterAccess::Create({.parameter_dtype = DType::kFloat16, .masters = Masters::kRemainder}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("masters remainder")));
  EXPECT_THAT(ParameterAccess::Create({.parameter_dtype = DType::kInt64}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("parameters are int64")));
}

}  // namespace
}  // namespace ait
