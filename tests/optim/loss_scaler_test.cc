// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <limits>
#include <string_view>

#include "optim/reference_data.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ReadReferenceLines;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// The scales before each step and after the last; '.' is a clean step, 'x' one that is not finite.
std::vector<double> Scales(LossScaler& scaler, std::string_view steps) {
  std::vector<double> scales = {scaler.scale()};
  for (const char step : steps) {
    EXPECT_OK(scaler.Update(step == 'x' ? Gradients::kNotFinite : Gradients::kFinite));
    scales.push_back(scaler.scale());
  }
  return scales;
}

TEST(LossScaler, FollowsTorchWithAHysteresisOfOne) {
  const auto torch = ReadReferenceLines(AIT_TEST_REFERENCE "/schedules.txt");
  ASSERT_FALSE(torch.empty());
  LossScaler scaler({.initial_scale = 1024, .growth_interval = 3});
  std::string steps;
  for (const double found : torch.at("found")) steps += found != 0 ? 'x' : '.';
  std::vector<double> scales = Scales(scaler, steps);
  scales.pop_back();
  EXPECT_EQ(scales, torch.at("scale"));
}

TEST(LossScaler, DefaultsAreThoseOfTorch) {
  LossScaler scaler;
  ASSERT_OK(scaler.options().Validate());
  EXPECT_EQ(scaler.scale(), 65536);
  Scales(scaler, std::string(1999, '.'));
  EXPECT_EQ(scaler.scale(), 65536);
  Scales(scaler, ".");
  EXPECT_EQ(scaler.scale(), 131072);
  Scales(scaler, "x");
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, HysteresisBearsSomeOverflowsAndItsAllowanceComesBackWithAGrowth) {
  LossScaler scaler({.initial_scale = 64, .growth_interval = 3, .hysteresis = 2});
  EXPECT_THAT(Scales(scaler, "x.x"), ElementsAre(64, 64, 64, 32)) << "not only those in a row";
  EXPECT_THAT(Scales(scaler, "x"), ElementsAre(32, 16));
  EXPECT_THAT(Scales(scaler, "...x"), ElementsAre(16, 16, 16, 32, 32));
}

TEST(LossScaler, StaysWithinFloorAndCeiling) {
  LossScaler scaler({.initial_scale = 8, .growth_interval = 1, .min_scale = 3, .max_scale = 20});
  EXPECT_THAT(Scales(scaler, "xxx..."), ElementsAre(8, 4, 3, 3, 6, 12, 20));
}

TEST(LossScaler, AStaticScaleStaysAndItsSkipsAreCounted) {
  LossScaler scaler(LossScalerOptions::Static(128));
  ASSERT_OK(scaler.options().Validate());
  Scales(scaler, "xx.xx");
  Scales(scaler, std::string(5000, '.'));
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_EQ(scaler.state().skipped, 4);
  EXPECT_EQ(scaler.state().skipped_in_a_row, 0);
}

TEST(LossScaler, TooManySkipsInARowAreAnErrorThatSaysWhatToDo) {
  LossScaler scaler({.initial_scale = 1024, .skip_limit = 2});
  Scales(scaler, "xx.xx");  // a clean step between: the count begins anew
  EXPECT_THAT(scaler.Update(Gradients::kNotFinite),
              StatusIs(StatusCode::kOutOfRange,
                       AllOf(HasSubstr("3 steps in a row, allowed are 2"),
                             HasSubstr("the last loss scale was 64"), HasSubstr("skip_limit"))));
  LossScaler low({.initial_scale = 2, .skip_limit = 3});
  Scales(low, "xxx");
  EXPECT_THAT(Message(low.Update(Gradients::kNotFinite)),
              AllOf(HasSubstr("scale was 1, the least allowed"), HasSubstr("use bf16")));
  LossScalerOptions options = LossScalerOptions::Static(128);
  options.skip_limit = 0;
  LossScaler fixed(options);
  EXPECT_THAT(Message(fixed.Update(Gradients::kNotFinite)),
              AllOf(HasSubstr("which is static"), Not(HasSubstr("least"))));
}

TEST(LossScaler, GoesOnFromItsStateAsIfNothingHadHappened) {
  const LossScalerOptions options{
      .initial_scale = 4096, .growth_interval = 4, .backoff = 0.3, .hysteresis = 2};
  const std::string steps = "..x.x.....xx...xxx.............x.x.x....";
  for (std::size_t cut = 0; cut < steps.size(); ++cut) {
    LossScaler before(options), after(options);
    Scales(before, steps.substr(0, cut));
    ASSERT_OK_AND_ASSIGN(const auto saved, LossScalerStateFromText(ToText(before.state())));
    EXPECT_EQ(saved, before.state());
    ASSERT_OK(after.set_state(saved));
    EXPECT_EQ(Scales(after, steps.substr(cut)), Scales(before, steps.substr(cut))) << cut;
    EXPECT_EQ(after.state(), before.state());
  }
}

TEST(LossScaler, ASavedStateThatDoesNotFitIsRefusedOrBroughtInside) {
  EXPECT_THAT(LossScalerStateFromText("loss_scaler 2 scale 1"),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("version 2"), HasSubstr("reads version 1"))));
  EXPECT_THAT(LossScalerStateFromText(""), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LossScalerStateFromText("loss_scaler 1 scale 8 clean_steps 1.5"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("clean_steps \"1.5\"")));
  LossScaler scaler({.max_scale = 65536});
  EXPECT_THAT(scaler.set_state({.scale = std::numeric_limits<double>::infinity()}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("scale is inf")));
  EXPECT_THAT(scaler.set_state({.clean_steps = -1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("clean_steps is -1")));
  EXPECT_OK(scaler.set_state({.scale = 1e30, .hysteresis_left = 7}));
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(scaler.state().hysteresis_left, 1);
  LossScaler fixed(LossScalerOptions::Static(8));
  EXPECT_OK(fixed.set_state({.scale = 1024, .skipped = 3}));
  EXPECT_EQ(fixed.scale(), 8);
  EXPECT_EQ(fixed.state().skipped, 3);
}

TEST(LossScaler, ABadOptionIsAnErrorThatNamesItAndItsValue) {
  const auto error = [](const LossScalerOptions& options) { return Message(options.Validate()); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(error({.initial_scale = nan}), HasSubstr("initial_scale is nan"));
  EXPECT_THAT(error({.initial_scale = 0.5}), HasSubstr("initial_scale is 0.5"));
  EXPECT_THAT(error({.growth = 1}), HasSubstr("growth is 1;"));
  EXPECT_THAT(error({.growth_interval = 0}), HasSubstr("growth_interval is 0"));
  EXPECT_THAT(error({.backoff = 1}), HasSubstr("backoff is 1;"));
  EXPECT_THAT(error({.hysteresis = 0}), HasSubstr("hysteresis is 0"));
  EXPECT_THAT(error({.min_scale = 0}), HasSubstr("min_scale is 0"));
  EXPECT_THAT(error({.max_scale = 1e39}), HasSubstr("max_scale is 1e+39"));
  EXPECT_THAT(error({.skip_limit = -1}), HasSubstr("skip_limit is -1"));
}

TEST(LossScaler, DescribesEveryOption) {
  LossScalerOptions options;
  const std::string text = options.Describe();
  options.skip_limit = 7;
  EXPECT_NE(options.Describe(), text);
  EXPECT_NE(LossScalerOptions::Static(65536).Describe(), text);
}

}  // namespace
}  // namespace ait
