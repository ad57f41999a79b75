// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/parameter_groups.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParameterGroups, PatternsMatchTheWholeName) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("*.bias", "layers.0.bias"));
  EXPECT_FALSE(MatchesPattern("*.bias", "layers.0.bias2"));
  EXPECT_TRUE(MatchesPattern("layers.?.weight", "layers.7.weight"));
  EXPECT_FALSE(MatchesPattern("layers.?.weight", "layers.17.weight"));
  EXPECT_TRUE(MatchesPattern("a*b*c", "a_bb_b_c"));
  EXPECT_FALSE(MatchesPattern("a*b*c", "a_c"));
  EXPECT_FALSE(MatchesPattern("", "x"));
  EXPECT_TRUE(MatchesPattern("exact", "exact"));
}

TEST(ParameterGroups, NormsAndBiasesAreWhatHasFewerThanTwoDimensions) {
  const ParameterGroup group = NoDecayForNormsAndBiases();
  EXPECT_EQ(group.weight_decay, 0.0);
  EXPECT_FALSE(group.learning_rate.has_value());
  EXPECT_TRUE(group.Selects({.name = "norm.weight", .shape = {8}}));
  EXPECT_TRUE(group.Selects({.name = "temperature"}));
  EXPECT_FALSE(group.Selects({.name = "linear.weight", .shape = {8, 8}}));
}

TEST(ParameterGroups, TheFirstThatSelectsWins) {
  const ParameterGroups groups = {{.name = "head", .pattern = "head.*"},
                                  NoDecayForNormsAndBiases()};
  EXPECT_EQ(GroupOf(groups, {.name = "head.bias", .shape = {8}}), 0);
  EXPECT_EQ(GroupOf(groups, {.name = "body.bias", .shape = {8}}), 1);
  EXPECT_EQ(GroupOf(groups, {.name = "body.weight", .shape = {8, 8}}), std::nullopt);
}

TEST(ParameterGroups, ABadOptionIsAnErrorThatNamesGroupAndValue) {
  EXPECT_THAT(Validate(ParameterGroups{{.name = "head", .learning_rate = -1.0}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"head\""), HasSubstr("learning_rate is -1"))));
  EXPECT_THAT(Validate(ParameterGroups{{.name = "head", .min_dimensions = 3, .max_dimensions = 1}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("min_dimensions is 3")));
}

TEST(ParameterGroups, AGroupThatSelectsNothingIsNamed) {
  const std::vector<ParameterSegment> parameters = {{"head.weight", 0, {8, 8}},
                                                    {"head.bias", 64, {8}}};
  EXPECT_OK(CheckSelection({{.name = "head", .pattern = "head.*"}}, parameters));
  EXPECT_OK(CheckSelection({NoDecayForNormsAndBiases()}, {{"weight", 0, {8, 8}}}));
  EXPECT_THAT(CheckSelection({{.name = "head", .pattern = "haed.*"}}, parameters),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"head\" with pattern \"haed.*\" selects none of the 2"),
                             HasSubstr("\"head.weight\""))));
  EXPECT_THAT(CheckSelection({{.name = "head", .pattern = "head.*", .min_dimensions = 3}}, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("none of the 0 parameters")));
}

}  // namespace
}  // namespace ait
