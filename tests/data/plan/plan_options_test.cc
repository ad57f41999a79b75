// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/plan_options.h"

#include <gtest/gtest.h>

#include <span>

#include "ait/data/plan/data_plan.h"
#include "data/plan/plan_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Source;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

class Digits final : public SampleSource {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override { return 10; }
  std::uint64_t digest() const override { return 77; }
  std::span<const std::int64_t> block_begins() const override { return begins_; }
  void Read(std::span<SampleRead>) const override {}
  std::int64_t size_bytes(std::int64_t) const override { return 1; }

 private:
  const std::string name_ = "digits";
  const std::vector<std::int64_t> begins_ = {0, 4, 8};
};

TEST(PlanOptions, TakeWhatASampleSourceSaysOfItself) {
  const PlanSource source = MakePlanSource(Digits());
  EXPECT_EQ(source.name, "digits");
  EXPECT_EQ(source.count, 10);
  EXPECT_EQ(source.digest, 77u);
  EXPECT_EQ(source.block_begins, (std::vector<std::int64_t>{0, 4, 8}));
  EXPECT_FALSE(source.lengths.of);
}

TEST(PlanOptions, CutBlocksOfOneSize) {
  EXPECT_EQ(UniformBlocks(10, 4), (std::vector<std::int64_t>{0, 4, 8}));
  EXPECT_EQ(UniformBlocks(8, 4), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(UniformBlocks(3, 100), (std::vector<std::int64_t>{0}));
}

TEST(PlanOptions, KeepLengthsWithADigest) {
  const SampleLengths lengths = MakeSampleLengths({5, 0, 7});
  EXPECT_EQ(lengths.of(0), 5);
  EXPECT_EQ(lengths.of(2), 7);
  EXPECT_EQ(lengths.digest, MakeSampleLengths({5, 0, 7}).digest);
  EXPECT_NE(lengths.digest, MakeSampleLengths({5, 1, 7}).digest);
  EXPECT_NE(lengths.digest, MakeSampleLengths({5, 0}).digest);
}

TEST(PlanOptions, RoundFractionsToWeights) {
  using Weights = std::vector<std::int64_t>;
  EXPECT_EQ(MixtureWeights({0.7, 0.25, 0.05}), (Weights{7000, 2500, 500}));
  EXPECT_EQ(MixtureWeights({1, 1, 1}, 10), (Weights{4, 3, 3}));
  EXPECT_EQ(MixtureWeights({3.5e12, 1e3, 0}, 100), (Weights{99, 1, 0}));
  EXPECT_EQ(MixtureWeights({1e-9, 1, 1e-9}, 3), (Weights{1, 1, 1}));
  EXPECT_EQ(MixtureWeights({2}), (Weights{10'000}));
  EXPECT_TRUE(MixtureWeights({}).empty());
  EXPECT_TRUE(MixtureWeights({0, 0}).empty());
  EXPECT_TRUE(MixtureWeights({1, -1}).empty());
  EXPECT_TRUE(MixtureWeights({1, 1, 1}, 2).empty());
}

void ExpectRefused(std::vector<PlanSource> sources, DataPlanOptions options,
                   const std::string& reason) {
  EXPECT_THAT(DataPlan::Create(std::move(sources), std::move(options)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr(reason)));
}

TEST(PlanOptions, AreRefusedWithAReason) {
  const std::vector<PlanSource> two = {Source("a", 10), Source("b", 20)};
  const auto lengths = ait::testing::WithLengths(Source("l", 10), 1, 5);
  ExpectRefused({}, {}, "no source");
  ExpectRefused({Source("a", 0)}, {}, "source 0 (a): it has 0 samples");
  ExpectRefused({Source("a", 10, {1, 4})}, {}, "begins at sample 1");
  ExpectRefused({Source("a", 10, {0, 4, 4})}, {}, "begins at sample 4");
  ExpectRefused({Source("a", 10, {0, 10})}, {}, "begins at sample 10");
  ExpectRefused(two, {.global_batch_size = 0}, "global batch size 0");
  ExpectRefused(two, {.epochs = 0}, "epochs is 0");
  ExpectRefused(two, {.window_blocks = 0}, "window has 0 blocks");
  ExpectRefused(
      two,
      {.global_batch_size = 31, .epoch_border = EpochBorder::kStop, .last_batch = LastBatch::kDrop},
      "less than a batch");
  ExpectRefused(two, {.epochs = std::int64_t{1} << 60}, "more than 2^62");
  ExpectRefused(two, {.stages = {{.shares = {{}}}}}, "1 shares for 2 sources");
  ExpectRefused(two, {.stages = {{.shares = {{.weight = -1}, {}}}}}, "weight -1");
  ExpectRefused(two, {.stages = {{.shares = {{.repeat = -1}, {}}}}}, "-1 times");
  ExpectRefused(two, {.stages = {{.shares = {{.repeat = 0}, {.repeat = 0}}}}}, "no source has");
  ExpectRefused(two, {.stages = {{.shares = {{.repeat = 1e300}, {}}}}}, "2^62");
  ExpectRefused(two, {.stages = {{.shares = {{.weight = 1, .repeat = 2}, {}}}}}, "mixture");
  ExpectRefused(two, {.stages = {{.shares = {{.weight = 1}, {.weight = 1 << 16}}}}}, "round them");
  ExpectRefused(two, {.stages = {{.shares = {{.weight = 1}, {.weight = 1000}}}}},
                "source 0 (a) has no sample");
  ExpectRefused(
      two,
      {.stages = {{.shares = {{.weight = 1}, {.weight = 1}}, .mixture_end = MixtureEnd::kSamples}}},
      "0 samples");
  ExpectRefused(two, {.epochs = 5, .stages = {{.first_epoch = 1}}}, "stage 0 begins");
  ExpectRefused(two, {.epochs = 5, .stages = {{}, {.first_epoch = 3}, {.first_epoch = 3}}},
                "stage 1 begins with epoch 3");
  ExpectRefused(two, {.epochs = 5, .stages = {{}, {.first_epoch = 5}}}, "stage 1 begins");
  ExpectRefused(two, {.stages = {{.shares = {{.subset = {.begin = 10}}, {}}}}}, "source 0 (a)");
  ExpectRefused(two, {.stages = {{.shares = {{.subset = {.stride = 0}}, {}}}}}, "steps of 0");
  ExpectRefused(two, {.stages = {{.shares = {{}, {.subset = {.ids = {3, 3}}}}}}}, "ascend");
  ExpectRefused(two, {.stages = {{.shares = {{}, {.subset = {.ids = {20}}}}}}}, "ascend");
  ExpectRefused(two, {.stages = {{.shares = {{.subset = {.end = 5, .ids = {1}}}, {}}}}},
                "not both");
  ExpectRefused(two, {.bucketing = {.window_samples = 100}}, "need the lengths");
  ExpectRefused({lengths}, {.bucketing = {.window_samples = 8, .group_samples = 9}}, "groups of 9");
  ExpectRefused({lengths}, {.global_batch_size = 9, .bucketing = {.window_samples = 8}},
                "group of 9");
  ExpectRefused({lengths}, {.packing = {.window_samples = 8}}, "budget of a row is 0");
  ExpectRefused({lengths}, {.packing = {.window_samples = -1, .row_budget = 1}}, "windows of");
  ExpectRefused({lengths},
                {.bucketing = {.window_samples = 8, .group_samples = 1},
                 .packing = {.window_samples = 8, .row_budget = 1}},
                "exclude each other");
}

TEST(PlanOptions, ASourceWithoutBlocksCountsAsOne) {
  const PlanSource source = {.name = "a", .count = 10};
  PlanStage stage;
  stage.shares = {{.repeat = 1e10}};
  const auto plan =
      DataPlan::Create({source}, {.order = SampleOrder::kBlockShuffled, .stages = {stage}});
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ait
