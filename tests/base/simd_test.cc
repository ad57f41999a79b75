// SPDX-License-Identifier: Apache-2.0
#include "ait/base/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ait/base/env.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SimdLevel, NamesOfTheEnvironmentAreThoseOfTheLevelsCappedByTheProcessor) {
  for (SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    Env env;
    env.ait_simd = std::string(Name(level));
    ASSERT_OK_AND_ASSIGN(const SimdLevel got, SimdLevelFromEnv(env));
    EXPECT_EQ(got, std::min(level, BestSimdLevel()));
  }
}

TEST(SimdLevel, AnUnsetVariableMeansTheBest) {
  ASSERT_OK_AND_ASSIGN(const SimdLevel got, SimdLevelFromEnv(Env{}));
  EXPECT_EQ(got, BestSimdLevel());
}

TEST(SimdLevel, AnUnknownNameIsAnErrorThatSaysWhatIsAllowed) {
  Env env;
  env.ait_simd = "avx1024";
  EXPECT_THAT(SimdLevelFromEnv(env),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("AIT_SIMD is \"avx1024\""),
                                                           HasSubstr("baseline, avx2 or avx512"))));
}

}  // namespace
}  // namespace ait
