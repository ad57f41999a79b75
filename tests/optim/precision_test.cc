// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(Precision, EveryNameGivesAPrecisionThatCanWork) {
  for (const char* name :
       {"fp32", "bf16", "bf16-remainder", "bf16-kahan", "bf16-stochastic", "bf16-pure", "fp16"}) {
    ASSERT_OK_AND_ASSIGN(const Precision precision, PrecisionNamed(name));
    EXPECT_OK(precision.Validate());
  }
  EXPECT_EQ(*PrecisionNamed("bf16"), Precision::Bf16());
  EXPECT_EQ(PrecisionNamed("bf16-remainder")->masters, Masters::kRemainder);
}

TEST(Precision, AnUnknownNameIsToldWhatThereIs) {
  EXPECT_THAT(PrecisionNamed("int4"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bf16-remainder")));
}

TEST(Precision, WhatCannotWorkIsRefused) {
  EXPECT_THAT((Precision{.parameters = DType::kInt64}).Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("int64")));
  EXPECT_THAT((Precision{.parameters = DType::kFloat16, .masters = Masters::kKahan}).Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("kahan")));
  EXPECT_THAT((Precision{.gradients = DType::kBFloat16}).Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("gradients are bfloat16")));
  EXPECT_THAT((Precision{.parameters = DType::kBFloat16,
                         .gradients = DType::kBFloat16,
                         .reduction = DType::kFloat32})
                  .Validate(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("reduction float32")));
}

TEST(Precision, DescriptionsDifferWhereAnythingDoes) {
  EXPECT_NE(Precision::Bf16().Describe(), Precision::Bf16(Masters::kRemainder).Describe());
  EXPECT_NE(Precision::Bf16(Masters::kStochastic, 1).Describe(),
            Precision::Bf16(Masters::kStochastic, 2).Describe());
}

}  // namespace
}  // namespace ait
