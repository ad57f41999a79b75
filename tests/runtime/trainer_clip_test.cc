// SPDX-License-Identifier: Apache-2.0
// Clipping: by any norm, by the norm of each group, by value. With plain SGD at a rate of 1, the
// weights move by minus the clipped gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyModel;
using ::ait::testing::ToyRank;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kEmbedding = ToyModel::kVocabulary * ToyModel::kWidth;  // elements

/// The gradient that a step of these options has moved the weights by, and the norm it reports.
struct Moved {
  std::vector<double> by;
  double norm = 0;
};

Moved Step(int ranks, const TrainerOptions& options, const DataParallelOptions& engine = {}) {
  std::vector<Moved> moved(static_cast<std::size_t>(ranks));
  const auto body = [&](ToyRank& rank) {
    const std::vector<float> before = rank.model.Values();
    Trainer trainer(*rank.engine, Sgd({.learning_rate = 1}, {{.name = "out", .pattern = "output"}}),
                    options);
    const auto step = trainer.Step(MakeBatch(rank.rank(), 6 + rank.rank()),
                                   [&](const ToyBatch& b) { return rank.model.Loss(b); });
    ASSERT_OK(step);
    Moved& own = moved[static_cast<std::size_t>(rank.rank())];
    own.norm = step->metrics.gradient_norm.value();
    const std::vector<float> after = rank.model.Values();
    for (std::size_t i = 0; i < after.size(); ++i)
      own.by.push_back(static_cast<double>(before[i]) - after[i]);
  };
  RunRanks(ranks, body, engine);
  for (const Moved& other : moved) EXPECT_EQ(other.by, moved[0].by);
  return moved[0];
}

double NormOf(std::span<const double> values, double p) {
  double sum = 0;
  for (const double value : values) {
    sum = p == kInfinity ? std::max(sum, std::abs(value)) : sum + std::pow(std::abs(value), p);
  }
  return p == kInfinity ? sum : std::pow(sum, 1 / p);
}

TEST(TrainerClip, BoundsTheNormOfAnyP) {
  for (const int ranks : {1, 2, 3}) {
    const Moved plain = Step(ranks, {});
    for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
      const double norm = NormOf(plain.by, p);
      const Moved clipped = Step(ranks, {.clip_norm = norm / 4, .norm = {.p = p}});
      EXPECT_NEAR(clipped.norm, norm, 1e-5 * norm) << "as it was before clipping";
      EXPECT_NEAR(NormOf(clipped.by, p), norm / 4, 1e-4 * norm) << p;
      for (std::size_t i = 0; i < plain.by.size(); ++i)
        EXPECT_NEAR(clipped.by[i], plain.by[i] / 4, 1e-6);
      const Moved free = Step(ranks, {.clip_norm = norm * 1.1, .norm = {.p = p}});
      EXPECT_EQ(free.by, plain.by) << p;
    }
  }
}

TEST(TrainerClip, BoundsTheNormOfEachGroupByItself) {
  for (const int ranks : {1, 2, 4}) {
    const Moved plain = Step(ranks, {});
    const std::span<const double> all(plain.by);
    const double embedding = NormOf(all.first(kEmbedding), 2);
    const double output = NormOf(all.subspan(kEmbedding), 2);
    // Between the two: one is scaled down, the other is not.
    ASSERT_GT(std::abs(embedding - output), 0.01 * output);
    const double bound = (embedding + output) / 2;
    const Moved clipped =
        Step(ranks, {.clip_norm = bound, .norm = {.scope = NormScope::kEachGroup}});
    const std::span<const double> now(clipped.by);
    EXPECT_NEAR(NormOf(now.first(kEmbedding), 2), std::min(embedding, bound), 1e-5);
    EXPECT_NEAR(NormOf(now.subspan(kEmbedding), 2), std::min(output, bound), 1e-5);
    EXPECT_NEAR(clipped.norm, NormOf(all, 2), 1e-5) << "the report has the norm of all";
  }
}

TEST(TrainerClip, CutsValuesAfterTheNorm) {
  const Moved plain = Step(2, {});
  const double largest = NormOf(plain.by, kInfinity);
  const Moved cut = Step(2, {.clip_value = largest / 3});
  for (std::size_t i = 0; i < plain.by.size(); ++i)
    EXPECT_NEAR(cut.by[i], std::clamp(plain.by[i], -largest / 3, largest / 3), 1e-6);
  const double norm = NormOf(plain.by, 2);
  const Moved both = Step(2, {.clip_norm = norm / 2, .clip_value = largest / 3});
  for (std::size_t i = 0; i < plain.by.size(); ++i)
    EXPECT_NEAR(both.by[i], std::clamp(plain.by[i] / 2, -largest / 3, largest / 3), 1e-6);
}

TEST(TrainerClip, ParametersThatAreNotCountedAreClippedAllTheSame) {
  const Moved plain = Step(1, {});
  const double embedding = NormOf(std::span(plain.by).first(kEmbedding), 2);
  const Moved clipped = Step(1, {.clip_norm = embedding / 2, .norm = {.not_counted = {"output"}}});
  EXPECT_NEAR(clipped.norm, embedding, 1e-5 * embedding);
  for (std::size_t i = 0; i < plain.by.size(); ++i)
    EXPECT_NEAR(clipped.by[i], plain.by[i] / 2, 1e-6);
}

TEST(TrainerClip, AllStagesClipByTheSameBits) {
  for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
    for (const NormScope scope : {NormScope::kAll, NormScope::kEachGroup}) {
      const TrainerOptions options{
          .clip_norm = 0.05, .norm = {.p = p, .scope = scope}, .clip_value = 0.03};
      const auto at = [&](ZeroStage stage) {
        return Step(3, options, {.zero_stage = stage, .reduce = ReduceWhen::kOnce});
      };
      const Moved plain = at(ZeroStage::kNone);
      for (const ZeroStage stage : {ZeroStage::kOptimizer, ZeroStage::kGradients}) {
        const Moved sharded = at(stage);
        EXPECT_EQ(sharded.norm, plain.norm) << p;
        EXPECT_EQ(sharded.by, plain.by) << p;
      }
    }
  }
}

TEST(TrainerClip, WrongOptionsAreNamed) {
  const std::pair<TrainerOptions, const char*> cases[] = {
      {{.norm = {.p = 0}}, "p is 0; it must be at least 1"},
      {{.clip_value = 0}, "clip_value is 0, it must be positive"},
      {{.autocast = DType::kInt32}, "autocast is int32, it must be bfloat16 or float16"},
      {{.loss_scaler = LossScalerOptions{.growth = 1}}, "growth is 1;"},
      {{.plateau = PlateauOptions{.decay = 2}}, "decay is 2;"},
  };
  for (const auto& [options, text] : cases) {
    RunRanks(1, [&](ToyRank& rank) {
      Trainer trainer(*rank.engine, Sgd{}, options);
      EXPECT_THAT(trainer.status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
    });
  }
}

TEST(TrainerClip, NormsThatDifferBetweenRanksAreNoticed) {
  RunRanks(2, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.norm = {.p = rank.rank() == 0 ? 3.0 : 4.0}});
    EXPECT_THAT(
        trainer.Step(MakeBatch(0, 3), [&](const ToyBatch& b) { return rank.model.Loss(b); }),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr("must_agree of rank 1")));
  });
}

}  // namespace
}  // namespace ait
