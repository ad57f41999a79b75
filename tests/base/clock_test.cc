// SPDX-License-Identifier: Apache-2.0
#include "ait/base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace ait {
namespace {

TEST(Deadline, InfiniteNeverExpires) {
  ManualClock clock;
  const Deadline deadline = Deadline::Infinite();
  clock.Advance(std::chrono::hours(1000));
  EXPECT_FALSE(deadline.expired(clock));
  EXPECT_EQ(deadline.remaining(clock), Duration::max());
}

TEST(Deadline, ExpiresExactlyAtItsTime) {
  ManualClock clock;
  const Deadline deadline = Deadline::After(std::chrono::seconds(2), clock);
  clock.Advance(std::chrono::milliseconds(1999));
  EXPECT_FALSE(deadline.expired(clock));
  EXPECT_EQ(deadline.remaining(clock), std::chrono::milliseconds(1));
  clock.SleepFor(std::chrono::milliseconds(1));
  EXPECT_TRUE(deadline.expired(clock));
  EXPECT_EQ(deadline.remaining(clock), Duration::zero());
}

TEST(Deadline, HugeTimeoutIsInfiniteInsteadOfOverflowing) {
  EXPECT_TRUE(Deadline::After(Duration::max()).is_infinite());
  EXPECT_TRUE(Deadline::After(std::chrono::microseconds::max()).is_infinite());
  EXPECT_TRUE(Deadline::After(std::chrono::milliseconds::max()).is_infinite());
  EXPECT_TRUE(Deadline::After(std::chrono::seconds::max()).is_infinite());
  EXPECT_TRUE(Deadline::After(std::chrono::hours::max()).is_infinite());
  EXPECT_TRUE(Deadline::After(std::chrono::hours(24 * 365 * 1000)).is_infinite());
  EXPECT_FALSE(Deadline::After(std::chrono::hours(24 * 365 * 100)).is_infinite());
  EXPECT_TRUE(Deadline::After(std::chrono::hours::min()).expired());
}

TEST(Saturate, KeepsWhatFitsAndCutsTheRest) {
  using std::chrono::duration;
  EXPECT_EQ(Saturate(std::chrono::milliseconds(1500)), std::chrono::nanoseconds(1'500'000'000));
  EXPECT_EQ(Saturate(std::chrono::hours(-3)), std::chrono::hours(-3));
  EXPECT_EQ(Saturate(duration<double>(0.25)), std::chrono::milliseconds(250));
  EXPECT_EQ(Saturate(duration<double>(1e300)), Duration::max());
  EXPECT_EQ(Saturate(duration<double>(-1e300)), Duration::min());
  EXPECT_EQ(Saturate(duration<double>(std::numeric_limits<double>::quiet_NaN())), Duration::max());
  EXPECT_EQ(Saturate(std::chrono::hours::min()), Duration::min());
  const std::chrono::seconds longest(9'223'372'036);  // whole seconds in 2^63 - 1 nanoseconds
  EXPECT_EQ(Saturate(longest), longest);
  EXPECT_EQ(Saturate(longest + std::chrono::seconds(1)), Duration::max());
}

TEST(SystemClock, MovesForwardWhileSleeping) {
  const Time before = SystemClock().now();
  SystemClock().SleepFor(std::chrono::milliseconds(2));
  EXPECT_GE(SystemClock().now() - before, std::chrono::milliseconds(2));
}

}  // namespace
}  // namespace ait
