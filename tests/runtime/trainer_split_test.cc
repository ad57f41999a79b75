// SPDX-License-Identifier: Apache-2.0
// The loss is weighted by tokens: however the same tokens are split over ranks and micro-batches,
// they give the same parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyModel;
using ::ait::testing::ToyRank;

constexpr int kTokens = 60;
constexpr int kSteps = 12;

ToyBatch Part(const ToyBatch& all, int begin, int end) {
  return {.inputs = {all.inputs.begin() + begin, all.inputs.begin() + end},
          .targets = {all.targets.begin() + begin, all.targets.begin() + end}};
}

/// Trains on all tokens in every step. `cuts` are ranks · accumulate + 1 places in them: the part
/// between two is a micro-batch, those of a rank follow each other.
std::vector<float> Train(int ranks, int accumulate, const std::vector<int>& cuts) {
  std::vector<float> values;
  RunRanks(ranks, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.5, .momentum = 0.9}},
                    {.clip_norm = 0.3, .accumulate = accumulate, .total_steps = kSteps});
    while (!trainer.done()) {
      const ToyBatch all = MakeBatch(static_cast<int>(trainer.step()), kTokens);
      for (int m = 0; m < accumulate; ++m) {
        const auto part = static_cast<std::size_t>(rank.rank() * accumulate + m);
        const auto step = trainer.Step(Part(all, cuts[part], cuts[part + 1]),
                                       [&](const ToyBatch& b) { return rank.model.Loss(b); });
        ASSERT_OK(step);
        if (m + 1 < accumulate) continue;
        EXPECT_EQ(step->metrics.counters[0].second, kTokens);
      }
    }
    if (rank.rank() == 0) values = rank.model.Values();
  });
  return values;
}

double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

TEST(TrainerSplit, AnySplitOfTheSameTokensGivesTheSameParameters) {
  const std::vector<float> whole = Train(1, 1, {0, kTokens});
  EXPECT_GT(RelativeDifference(whole, ToyModel().Values()), 0.1) << "they have moved";
  std::mt19937 random(7);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int accumulate : {1, 2, 3, 5}) {
      for (int trial = 0; trial < 3; ++trial) {
        // Of any length, and some of none.
        std::vector<int> cuts = {0, kTokens};
        while (static_cast<int>(cuts.size()) < ranks * accumulate + 1)
          cuts.push_back(std::uniform_int_distribution<int>(0, kTokens)(random));
        std::ranges::sort(cuts);
        EXPECT_LT(RelativeDifference(Train(ranks, accumulate, cuts), whole), 1e-6)
            << ranks << " ranks, " << accumulate << " micro-batches";
      }
    }
  }
}

}  // namespace
}  // namespace ait
