// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/parameter_layout.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParameterSegment, SizeIsTheProductOfTheShape) {
  EXPECT_EQ((ParameterSegment{.name = "matrix", .shape = {3, 5}}.size()), 15);
  EXPECT_EQ((ParameterSegment{.name = "scalar"}.size()), 1);
  EXPECT_EQ((ParameterSegment{.name = "empty", .shape = {4, 0}}.size()), 0);
}

TEST(ElementRange, IntersectionOfDisjointRangesIsEmpty) {
  EXPECT_EQ(Intersection({0, 10}, {5, 20}), (ElementRange{5, 10}));
  EXPECT_EQ(Intersection({0, 10}, {10, 20}).size(), 0);
  EXPECT_EQ(Intersection({30, 40}, {10, 20}).size(), 0);
}

TEST(ParameterLayout, AcceptsPaddingEmptyParametersAndNoOwnedRange) {
  EXPECT_OK(Validate(ParameterLayout{}));
  EXPECT_OK(
      Validate(ParameterLayout{.parameters = {{"a", 0, {7}}, {"none", 64, {0}}, {"b", 64, {2, 2}}},
                               .owned = {{3, 5}, {5, 65}}}));
}

TEST(ParameterLayout, NamesTheParameterThatOverlapsTheOneBefore) {
  EXPECT_THAT(Validate(ParameterLayout{.parameters = {{"a", 0, {7}}, {"b", 6, {1}}}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"b\" begins at element 6"), HasSubstr("7 or later"))));
  EXPECT_THAT(Validate(ParameterLayout{.parameters = {{"a", -1, {7}}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("before the buffer")));
}

TEST(ParameterLayout, NamesTheParameterThatIsThereTwiceOrHasANegativeDimension) {
  EXPECT_THAT(Validate(ParameterLayout{.parameters = {{"a", 0, {7}}, {"a", 64, {1}}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"a\" is twice")));
  EXPECT_THAT(Validate(ParameterLayout{.parameters = {{"a", 0, {2, -3}}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("negative dimension -3")));
}

TEST(ParameterLayout, StridesSayInWhichOrderElementsLie) {
  const auto segment = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
    return ParameterSegment{.name = "a", .shape = std::move(shape), .strides = std::move(strides)};
  };
  EXPECT_TRUE(segment({2, 3}, {}).is_row_major());
  EXPECT_TRUE(segment({2, 1, 3}, {3, 77, 1}).is_row_major());
  EXPECT_TRUE(segment({0, 3}, {1, 1}).is_row_major());
  EXPECT_FALSE(segment({2, 3}, {1, 2}).is_row_major());
  EXPECT_OK(Validate(ParameterLayout{.parameters = {segment({2, 3, 4, 5}, {60, 1, 15, 3})}}));
  for (const auto& bad : {segment({2, 3}, {1}), segment({2, 3}, {1, 3}), segment({2, 3}, {3, 0})}) {
    EXPECT_THAT(Validate(ParameterLayout{.parameters = {bad}}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"a\" has")));
  }
}

TEST(ParameterLayout, SizesThatOverflowAreNamed) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  EXPECT_EQ((ParameterSegment{.name = "empty", .shape = {kHuge, kHuge, 0}}.size()), 0);
  EXPECT_EQ((ParameterSegment{.name = "a", .shape = {kHuge, kHuge}}.size()), kMaxElements + 1);
  const auto names = [](const char* text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(Validate(ParameterLayout{.parameters = {{"a", 0, {kHuge, kHuge}}}}), names("\"a\""));
  EXPECT_THAT(Validate(ParameterLayout{.parameters = {{"a", 0, {7}}, {"b", kMaxElements, {1}}}}),
              names("\"b\" begins at element 576460752303423488 and ends after"));
  EXPECT_THAT(Validate(ParameterLayout{.parameters = {{"b", INT64_MAX, {1}}}}), names("\"b\""));
  EXPECT_THAT(Validate(ParameterLayout{.owned = {{0, INT64_MAX}}}), names("ends after element"));
  EXPECT_OK(Validate(ParameterLayout{.parameters = {{"a", 0, {kMaxElements}}}}));
}

TEST(ParameterLayout, RefusesOwnedRangesThatOverlapOrDescend) {
  EXPECT_THAT(Validate(ParameterLayout{.owned = {{0, 10}, {9, 12}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("[9, 12)")));
  EXPECT_THAT(Validate(ParameterLayout{.owned = {{10, 4}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("[10, 4)")));
}

}  // namespace
}  // namespace ait
