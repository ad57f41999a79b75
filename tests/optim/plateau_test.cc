// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/plateau.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/reference_data.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ReadReferenceLines;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Better = PlateauOptions::Better;
using Threshold = PlateauOptions::Threshold;

TEST(Plateau, FollowsReduceLROnPlateauOfTorch) {
  const auto torch = ReadReferenceLines(AIT_TEST_REFERENCE "/schedules.txt");
  ASSERT_FALSE(torch.empty());
  const std::pair<const char*, PlateauOptions> cases[] = {
      {"plateau", {.decay = 0.5, .patience = 1}},
      {"plateau_cooldown", {.decay = 0.5, .patience = 0, .cooldown = 3, .min_factor = 0.2}},
      {"plateau_absolute",
       {.decay = 0.1, .patience = 2, .threshold = 0.4, .threshold_is = Threshold::kAbsolute}},
      {"plateau_larger",
       {.better = Better::kLarger, .decay = 0.5, .patience = 1, .least_change = 0.1}},
      {"plateau_larger_absolute",
       {.better = Better::kLarger,
        .decay = 0.5,
        .patience = 1,
        .threshold = 0.3,
        .threshold_is = Threshold::kAbsolute}},
  };
  const std::vector<double>& metrics = torch.at("metrics");
  for (const auto& [name, options] : cases) {
    ASSERT_OK(options.Validate());
    Plateau plateau(options);
    EXPECT_EQ(plateau.factor(), 1);
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      plateau.Observe(metrics[i]);
      EXPECT_NEAR(plateau.factor(), torch.at(name)[i], 1e-15) << name << " after value " << i;
    }
  }
}

TEST(Plateau, GoesOnFromItsStateAsIfNothingHadHappened) {
  const PlateauOptions options{.decay = 0.7, .patience = 1, .cooldown = 2};
  const auto metric = [](int i) { return 3 + std::sin(2.5 * i) - 0.02 * i; };
  Plateau whole(options);
  for (int cut = 0; cut < 30; ++cut) {
    Plateau before(options), after(options);
    for (int i = 0; i < cut; ++i) before.Observe(metric(i));
    ASSERT_OK_AND_ASSIGN(const PlateauState saved, PlateauStateFromText(ToText(before.state())));
    EXPECT_EQ(saved, before.state());
    ASSERT_OK(after.set_state(saved));
    for (int i = cut; i < 40; ++i) {
      before.Observe(metric(i));
      after.Observe(metric(i));
      ASSERT_EQ(after.state(), before.state()) << "cut at " << cut << ", value " << i;
    }
    EXPECT_LT(after.factor(), 1);
  }
}

TEST(Plateau, ASavedStateThatDoesNotFitIsRefused) {
  EXPECT_THAT(PlateauStateFromText("loss_scaler 1 scale 3"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("kind plateau")));
  EXPECT_THAT(PlateauStateFromText("plateau 7 factor 1"),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("version 7"), HasSubstr("reads version 1"))));
  EXPECT_THAT(PlateauStateFromText("plateau 1 factor 1 best one not_better 0 cooldown_left 0"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("best \"one\"")));
  EXPECT_THAT(PlateauStateFromText("plateau 1 factor 1"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("has no best")));
  Plateau plateau;
  EXPECT_THAT(plateau.set_state({.factor = 2}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("factor is 2")));
  EXPECT_THAT(plateau.set_state({.not_better = -1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not_better is -1")));
  EXPECT_EQ(plateau.state(), Plateau().state());
}

TEST(Plateau, ABadOptionIsAnErrorThatNamesItAndItsValue) {
  const auto error = [](const PlateauOptions& options) { return Message(options.Validate()); };
  EXPECT_THAT(error({.decay = 1}), HasSubstr("decay is 1;"));
  EXPECT_THAT(error({.decay = 0}), HasSubstr("decay is 0;"));
  EXPECT_THAT(error({.patience = -1}), HasSubstr("patience is -1"));
  EXPECT_THAT(error({.cooldown = -2}), HasSubstr("cooldown is -2"));
  EXPECT_THAT(error({.threshold = -0.5}), HasSubstr("threshold is -0.5"));
  EXPECT_THAT(error({.threshold = 1}), HasSubstr("threshold is 1;"));
  EXPECT_THAT(error({.min_factor = 1.5}), HasSubstr("min_factor is 1.5"));
  EXPECT_THAT(error({.least_change = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("least_change is nan"));
  EXPECT_OK((PlateauOptions{.threshold = 2, .threshold_is = Threshold::kAbsolute}.Validate()));
}

}  // namespace
}  // namespace ait
