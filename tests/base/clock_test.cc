// SPDX-License-Identifier: Apache-2.0
#include "ait/base/clock.h"

#include <gtest/gtest.h>

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
}

TEST(SystemClock, MovesForwardWhileSleeping) {
  const Time before = SystemClock().now();
  SystemClock().SleepFor(std::chrono::milliseconds(2));
  EXPECT_GE(SystemClock().now() - before, std::chrono::milliseconds(2));
}

}  // namespace
}  // namespace ait
