// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/batch_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

// The least that a program has to write: ten samples in order, two a rank.
class TenSamples final : public BatchPlan {
 public:
  std::uint64_t digest() const override { return 10; }
  std::int64_t epoch_size(std::int64_t) const override { return 10; }
  Status NextBatch(const DatasetState& from, const Shard& shard,
                   PlannedBatch& batch) const override {
    batch = PlannedBatch{.after = from, .is_end = from.delivered >= 10};
    for (std::int64_t i = 0; i < 2 && !batch.is_end; ++i) {
      const std::int64_t position = from.delivered + shard.rank.value() * 2 + i;
      if (position >= 10) continue;
      batch.samples.push_back({.id = position, .position = position});
    }
    batch.global_samples = 2 * shard.size.value();
    batch.after.delivered += batch.global_samples;
    return OkStatus();
  }
};

TEST(BatchPlanTest, IsWalkedByItsStates) {
  const TenSamples plan;
  std::vector<std::int64_t> ids;
  PlannedBatch batch;
  DatasetState at{.plan_digest = plan.digest()};
  while (true) {
    ASSERT_OK(plan.NextBatch(at, Shard{}, batch));
    if (batch.is_end) break;
    for (const PlannedSample& sample : batch.samples) ids.push_back(sample.id);
    at = batch.after;
  }
  EXPECT_EQ(ids, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

}  // namespace
}  // namespace ait
