// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/unit_schedule_internal.h"

namespace ait::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

UnitSchedule Learned(std::initializer_list<int> units) {
  UnitSchedule schedule;
  schedule.Begin();
  for (const int unit : units) schedule.Use(unit);
  schedule.Begin();
  return schedule;
}

TEST(UnitScheduleTest, KnowsNothingInTheFirstMicroStep) {
  UnitSchedule schedule;
  EXPECT_THAT(schedule.Ahead(2), IsEmpty());
  schedule.Begin();
  schedule.Use(0);
  EXPECT_THAT(schedule.Ahead(2), IsEmpty());
  EXPECT_EQ(schedule.next(), -1);
  EXPECT_EQ(schedule.surprises(), 0);
}

TEST(UnitScheduleTest, ForetellsWhatTheMicroStepBeforeDid) {
  UnitSchedule schedule = Learned({0, 1, 2, 2, 1, 0});
  EXPECT_THAT(schedule.Ahead(2), ElementsAre(0, 1));
  schedule.Use(0);
  EXPECT_THAT(schedule.Ahead(1), ElementsAre(1));
  schedule.Use(1);
  schedule.Use(2);
  EXPECT_EQ(schedule.next(), 2) << "it stays for backward";
  EXPECT_THAT(schedule.Ahead(2), ElementsAre(1, 0)) << "each once, without the one in use";
  schedule.Use(2);
  schedule.Use(1);
  schedule.Use(0);
  EXPECT_THAT(schedule.Ahead(2), IsEmpty());
  EXPECT_EQ(schedule.next(), -1);
  EXPECT_EQ(schedule.surprises(), 0);
}

TEST(UnitScheduleTest, FindsItsPlaceAfterAUnitThatWasLeftOut) {
  UnitSchedule schedule = Learned({0, 1, 2, 3});
  schedule.Use(0);
  schedule.Use(2);
  EXPECT_EQ(schedule.surprises(), 1);
  EXPECT_THAT(schedule.Ahead(1), ElementsAre(3));
}

TEST(UnitScheduleTest, GoesOnAfterAUnitThatIsNew) {
  UnitSchedule schedule = Learned({0, 1, 2});
  schedule.Use(0);
  schedule.Use(7);
  EXPECT_EQ(schedule.surprises(), 1);
  EXPECT_THAT(schedule.Ahead(1), ElementsAre(1));
  schedule.Use(1);
  schedule.Use(2);
  schedule.Begin();
  EXPECT_THAT(schedule.Ahead(9), ElementsAre(0, 7, 1, 2)) << "the new way";
}

TEST(UnitScheduleTest, AnEmptyMicroStepForgetsNothing) {
  UnitSchedule schedule = Learned({3, 4});
  schedule.Begin();
  EXPECT_THAT(schedule.Ahead(2), ElementsAre(3, 4));
}

}  // namespace
}  // namespace ait::internal
