// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ait/data/plan/data_plan.h"
#include "data/plan/plan_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::RandomPlans;
using ::ait::testing::Source;
using Ids = std::vector<std::int64_t>;

DataPlan Make(std::vector<PlanSource> sources, DataPlanOptions options) {
  options.order = SampleOrder::kBlockShuffled;
  StatusOr<DataPlan> plan = DataPlan::Create(std::move(sources), std::move(options));
  EXPECT_OK(plan.status());
  return *std::move(plan);
}

Ids IdsOf(const DataPlan& plan, std::int64_t epoch) {
  Ids ids;
  for (std::int64_t p = 0; p < plan.epoch_size(epoch); ++p) ids.push_back(plan.At(epoch, p).id);
  return ids;
}

// The vectors of docs/resuming.md, by testdata/plan_orders.py.
TEST(DataPlanBlocks, GivesTheDocumentedVectors) {
  const PlanSource source = Source("train", 20, {0, 3, 7, 8, 12, 17});
  const DataPlan two = Make({source}, {.seed = 1, .window_blocks = 2, .epochs = 2});
  EXPECT_EQ(IdsOf(two, 0),
            (Ids{10, 11, 14, 9, 16, 15, 13, 12, 8, 2, 0, 7, 1, 6, 19, 3, 4, 18, 17, 5}));
  EXPECT_EQ(IdsOf(two, 1),
            (Ids{4, 13, 12, 3, 15, 16, 5, 6, 14, 2, 7, 0, 1, 18, 10, 17, 9, 11, 8, 19}));
  const DataPlan four = Make({source}, {.seed = 9, .window_blocks = 4, .epochs = 6});
  EXPECT_EQ(IdsOf(four, 5),
            (Ids{18, 15, 19, 12, 0, 14, 7, 17, 1, 2, 13, 16, 10, 3, 9, 8, 6, 4, 11, 5}));
  const DataPlan large =
      Make({Source("large", 1'000'000, UniformBlocks(1'000'000, 1000))}, {.seed = 7, .epochs = 4});
  EXPECT_EQ(large.At(3, 0).id, 799252);
  EXPECT_EQ(large.At(3, 1).id, 851706);
  EXPECT_EQ(large.At(3, 123456).id, 342250);
  EXPECT_EQ(large.At(3, 999999).id, 173896);
}

// At any position no more blocks are open than a window has.
TEST(DataPlanBlocks, ReadsAFewBlocksAtATime) {
  const DataPlan plan =
      Make({Source("train", 10'000, UniformBlocks(10'000, 100))}, {.window_blocks = 7});
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> span;  // first and last use
  for (std::int64_t p = 0; p < 10'000; ++p) {
    const std::int64_t block = plan.At(0, p).id / 100;
    span.try_emplace(block, p, p).first->second.second = p;
  }
  ASSERT_EQ(span.size(), 100u);
  for (std::int64_t p = 0; p < 10'000; ++p) {
    const auto open = std::count_if(span.begin(), span.end(), [&](const auto& s) {
      return s.second.first <= p && p <= s.second.second;
    });
    ASSERT_LE(open, 7);
  }
}

// The quality that docs/resuming.md states: blocks come anywhere, neighbours hardly ever stay so,
// and a window is shuffled as a whole.
TEST(DataPlanBlocks, MixesWellWithinWindows) {
  constexpr std::int64_t kCount = 200'000;
  const DataPlan plan = Make({Source("train", kCount, UniformBlocks(kCount, 500))}, {.seed = 3});
  double displacement = 0;
  std::int64_t neighbours = 0;
  std::int64_t same_block = 0;
  std::int64_t previous = -2;
  for (std::int64_t p = 0; p < kCount; ++p) {
    const std::int64_t id = plan.At(0, p).id;
    displacement += static_cast<double>(std::abs(id - p)) / kCount;
    if (std::abs(id - previous) == 1) ++neighbours;
    if (id / 500 == previous / 500) ++same_block;
    previous = id;
  }
  EXPECT_NEAR(displacement / kCount, 1.0 / 3, 0.05);  // as of a permutation of all
  EXPECT_NEAR(static_cast<double>(neighbours), 2.0 * kCount / 8000, 30);
  EXPECT_NEAR(static_cast<double>(same_block) / kCount, 1.0 / 16, 0.005);
}

// Each sample is read from a block that BlocksNeeded has open at its position, and each block that
// it opens is read from.
TEST(DataPlanBlocks, SaysWhichBlocksAreNeededWhen) {
  RandomPlans random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<PlanSource> sources = random.Sources(120);
    DataPlanOptions options = random.Options();
    options.epochs = 3;
    PlanStage stage = random.Mixture(sources.size());
    if (round % 2 == 0) {
      stage = {};
      for (std::size_t s = 0; s < sources.size(); ++s) {
        stage.shares.push_back({.repeat = 0.25 * static_cast<double>(1 + random.Below(12))});
      }
    }
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const std::int64_t begin = random.Below(sources[s].count);
      stage.shares[s].subset = {.begin = begin, .stride = 1 + random.Below(30)};
    }
    options.stages = {stage};
    StatusOr<DataPlan> plan = DataPlan::Create(sources, options);
    if (!plan.ok()) continue;  // such as a quarter of one sample
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::int64_t size = plan->epoch_size(epoch);
      const std::int64_t begin = random.Below(size);
      const std::int64_t end = begin + random.Below(size - begin + 1);
      const std::vector<PlannedBlock> blocks = plan->BlocksNeeded(epoch, begin, end);
      std::int64_t last = 0;
      std::set<std::pair<std::int64_t, std::int64_t>> used;
      const auto block_of = [&](const PlannedSample& sample) {
        const auto& begins = sources[static_cast<std::size_t>(sample.source)].block_begins;
        if (begins.empty()) return std::int64_t{0};
        return static_cast<std::int64_t>(std::upper_bound(begins.begin(), begins.end(), sample.id) -
                                         begins.begin() - 1);
      };
      for (const PlannedBlock& block : blocks) {
        EXPECT_GE(block.begin_position, last);
        EXPECT_GE(block.begin_position, 0);
        EXPECT_LT(block.begin_position, block.end_position);
        EXPECT_LE(block.end_position, size);
        last = block.begin_position;
        // It is used in that time, if the epoch has all of the pass, and not some of all blocks.
        if (round % 2 != 0 || options.order == SampleOrder::kShuffled) continue;
        bool is_used = false;
        for (std::int64_t p = block.begin_position; p < block.end_position && !is_used; ++p) {
          const PlannedSample sample = plan->At(epoch, p);
          is_used = sample.source == block.source && block_of(sample) == block.block;
        }
        EXPECT_TRUE(is_used) << "round " << round;
      }
      for (std::int64_t p = begin; p < end; ++p) {
        const PlannedSample sample = plan->At(epoch, p);
        const auto open = std::count_if(blocks.begin(), blocks.end(), [&](const PlannedBlock& b) {
          return b.source == sample.source && b.block == block_of(sample) &&
                 b.begin_position <= p && p < b.end_position;
        });
        ASSERT_GE(open, 1) << "round " << round << ", position " << p;
      }
    }
  }
}

TEST(DataPlanBlocks, NeedsEveryBlockInWindowsOfAFew) {
  const DataPlan plan =
      Make({Source("train", 100, UniformBlocks(100, 10))}, {.seed = 2, .window_blocks = 3});
  const std::vector<PlannedBlock> first = plan.BlocksNeeded(0, 0, 1);
  ASSERT_EQ(first.size(), 3u);
  for (const PlannedBlock& block : first) {
    EXPECT_EQ(block.begin_position, 0);
    EXPECT_EQ(block.end_position, 30);
  }
  EXPECT_EQ(plan.BlocksNeeded(0, 29, 31).size(), 6u);
  EXPECT_EQ(plan.BlocksNeeded(0, 99, 100).size(), 1u);
  EXPECT_EQ(plan.BlocksNeeded(0, 0, 100).size(), 10u);
  EXPECT_TRUE(plan.BlocksNeeded(0, 5, 5).empty());
}

}  // namespace
}  // namespace ait
