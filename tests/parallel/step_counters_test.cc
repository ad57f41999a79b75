// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/step_counters.h"

#include "support/status_matchers.h"

namespace ait {
namespace {

TEST(StepCounters, StartsAtZeroAndSpeaksInSeconds) {
  const StepCounters counters;
  EXPECT_EQ(counters.collectives, 0);
  EXPECT_EQ(counters.exposed, Duration::zero());
  EXPECT_TRUE(counters.buckets.empty());
  EXPECT_DOUBLE_EQ(Seconds(std::chrono::milliseconds(1500)), 1.5);
}

}  // namespace
}  // namespace ait
