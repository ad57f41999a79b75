// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/parameter_unit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Keep the order.
#include <ATen/core/ivalue.h>
// clang-format off
#include <ATen/core/Tensor.h>
// clang-format on

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParameterInfo Info(std::string name, std::int64_t count, int tied_to = -1) {
  return {.name = std::move(name), .sizes = {count}, .strides = {1}, .tied_to = tied_to};
}

std::vector<int> UnitsOf(const std::vector<ParameterInfo>& parameters) {
  std::vector<int> units;
  for (const ParameterInfo& info : parameters) units.push_back(info.unit);
  return units;
}

TEST(ParameterUnit, EveryModuleUnderAPrefixIsOne) {
  NamedTensors names;
  for (const char* name : {"tok.weight", "blocks.0.up.weight", "blocks.0.up.bias",
                           "blocks.10.up.weight", "blocks.scale"}) {
    names.Add(name, at::Tensor());
  }
  const std::vector<ParameterUnit> units = UnitsUnder("blocks", names);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].name, "blocks.0");
  EXPECT_THAT(units[1].patterns, ElementsAre("blocks.10.*"));
  EXPECT_TRUE(UnitsUnder("layers", names).empty());
}

TEST(ParameterUnit, TheFirstThatMatchesTakesAParameterAndSmallOnesStayWhole) {
  std::vector<ParameterInfo> parameters = {Info("a.weight", 100), Info("a.bias", 10),
                                           Info("b.weight", 100), Info("c", 100),
                                           Info("a.again", 100, 0)};
  ASSERT_OK(AssignUnits({{"a", {"a.*"}}, {"rest", {"b.*", "a.*"}}}, 10, parameters));
  EXPECT_THAT(UnitsOf(parameters), ElementsAre(0, -1, 1, -1, 0));
}

TEST(ParameterUnit, WhatCannotWorkIsRefused) {
  std::vector<ParameterInfo> parameters = {Info("a", 100), Info("b", 100, 0)};
  EXPECT_THAT(AssignUnits({{"", {"*"}}}, 0, parameters),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no name")));
  EXPECT_THAT(AssignUnits({{"x", {"*"}}, {"x", {"*"}}}, 0, parameters),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the name x")));
  EXPECT_THAT(AssignUnits({{"x", {"y.*"}}}, 0, parameters),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("matches no parameter")));
  EXPECT_THAT(AssignUnits({{"x", {"a"}}, {"y", {"b"}}}, 0, parameters),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a and b"), HasSubstr("unit x"), HasSubstr("unit y"))));
}

}  // namespace
}  // namespace ait
