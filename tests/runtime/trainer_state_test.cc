// SPDX-License-Identifier: Apache-2.0
#include "ait/runtime/trainer_state.h"

#include <gtest/gtest.h>

#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Fault;
using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

const TrainerState kFull{.step = 12,
                         .updates = 9,
                         .skipped_in_a_row = 2,
                         .loss_scaler = LossScalerState{.scale = 0.1, .clean_steps = 3},
                         .plateau = PlateauState{.factor = 0.01, .best = 1.0 / 3}};

TEST(TrainerState, ComesBackFromText) {
  EXPECT_EQ(ToText({.step = 3, .updates = 2, .skipped_in_a_row = 1}),
            "trainer 1 step 3 updates 2 skipped_in_a_row 1\n");
  for (const TrainerState& state :
       {TrainerState(), kFull, TrainerState{.step = 5, .updates = 5, .plateau = PlateauState()}}) {
    ASSERT_OK_AND_ASSIGN(const TrainerState read, TrainerStateFromText(ToText(state)));
    EXPECT_EQ(read, state);
  }
}

TEST(TrainerState, TextThatIsNoneIsRefused) {
  EXPECT_THAT(TrainerStateFromText(""), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(TrainerStateFromText(ToText(*kFull.plateau)), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(TrainerStateFromText("trainer 9 step 1"),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("version 9"), HasSubstr("reads version 1"))));
  EXPECT_THAT(TrainerStateFromText("trainer 1 step 1 updates 1"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("has no skipped_in_a_row")));
  EXPECT_THAT(TrainerStateFromText(ToText(TrainerState()) + "moon 1 phase 3\n"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("unknown kind: \"moon 1")));
  EXPECT_THAT(TrainerStateFromText(ToText(TrainerState()) + "loss_scaler 3 scale 1\n"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("kind loss_scaler")));
}

TrainerOptions AllOptions() {
  return {.autocast = DType::kFloat16,
          .loss_scaler = LossScalerOptions{.initial_scale = 64, .growth_interval = 2},
          .schedule = LinearSchedule{.total_steps = 30},
          .plateau = PlateauOptions{.decay = 0.5, .patience = 1}};
}

/// Steps `begin` to `end` of a run; step 3 overflows, and a metric is told after every step.
void Train(Trainer& trainer, const ToyRank& rank, int begin, int end, std::vector<double>& rates) {
  for (int s = begin; s < end; ++s) {
    const Fault fault = s == 3 && rank.rank() == 0 ? Fault::kNanGradient : Fault::kNone;
    const auto step = trainer.Step(MakeBatch(s + rank.rank(), 5),
                                   [&](const ToyBatch& b) { return rank.model.Loss(b, fault); });
    ASSERT_OK(step);
    rates.push_back(step->metrics.learning_rate.value());
    rates.push_back(step->metrics.loss_scale.value());
    EXPECT_EQ(step->metrics.step, s + 1);
    EXPECT_EQ(step->metrics.skipped_steps, s >= 3 ? 1 : 0);
    ASSERT_OK(trainer.Observe(5 - 0.1 * std::min(s, 4)));
  }
}

TEST(TrainerState, ATrainerGoesOnFromItAsIfNothingHadHappened) {
  RunRanks(2, [](ToyRank& rank) {
    std::vector<double> whole_rates;
    const Sgd optimizer{{.learning_rate = 0.1}};
    {
      Trainer trainer(*rank.engine, optimizer, AllOptions());
      Train(trainer, rank, 0, 12, whole_rates);
    }
    EXPECT_LT(whole_rates[22], 0.1 * 0.5) << "the plateau was seen";
    const std::vector<float> whole = rank.model.Values();
    for (const int cut : {1, 4, 5, 8, 11}) {
      const ToyRank again(rank.engine->communicator()->Split(0, rank.rank()).value());
      std::vector<double> rates;
      std::string saved;
      {
        Trainer trainer(*again.engine, optimizer, AllOptions());
        Train(trainer, again, 0, cut, rates);
        saved = ToText(trainer.state());
      }
      Trainer trainer(*again.engine, optimizer, AllOptions());
      ASSERT_OK_AND_ASSIGN(const TrainerState state, TrainerStateFromText(saved));
      ASSERT_OK(trainer.set_state(state));
      EXPECT_EQ(trainer.step(), cut);
      Train(trainer, again, cut, 12, rates);
      EXPECT_EQ(rates, whole_rates) << cut;
      EXPECT_EQ(again.model.Values(), whole) << cut;
    }
  });
}

TEST(TrainerState, WhatDoesNotFitTheTrainerIsRefusedAndChangesNothing) {
  RunRanks(1, [](ToyRank& rank) {
    Trainer plain(*rank.engine, Sgd{}, {.accumulate = 2});
    EXPECT_THAT(plain.set_state({.loss_scaler = LossScalerState()}),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("set TrainerOptions::loss_scaler, or clear it")));
    EXPECT_THAT(plain.set_state({.plateau = PlateauState()}),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("TrainerOptions::plateau")));
    EXPECT_THAT(plain.set_state({.step = 2, .updates = 3}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("updates is 3")));
    EXPECT_THAT(plain.Observe(1), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("plateau")));
    EXPECT_EQ(plain.state(), TrainerState());
    ASSERT_OK(plain.Step(MakeBatch(0, 3), [&](const ToyBatch& b) { return rank.model.Loss(b); }));
    EXPECT_THAT(plain.set_state({.step = 2, .updates = 2}),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("1 of 2 micro-batches")));
  });
  RunRanks(1, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, AllOptions());
    const TrainerState fresh = trainer.state();
    EXPECT_THAT(trainer.set_state({.step = 7,
                                   .updates = 7,
                                   .loss_scaler = LossScalerState{.scale = 2},
                                   .plateau = PlateauState{.factor = -1}}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("factor is -1")));
    EXPECT_EQ(trainer.state(), fresh);
  });
}

TEST(TrainerState, MetricsThatDifferBetweenRanksAreNoticedInTheNextStep) {
  RunRanks(2, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.plateau = PlateauOptions{.decay = 0.5, .patience = 0}});
    ASSERT_OK(trainer.Observe(1));
    ASSERT_OK(trainer.Observe(rank.rank() == 0 ? 0.5 : 1.5));
    EXPECT_THAT(
        trainer.Step(MakeBatch(0, 3), [&](const ToyBatch& b) { return rank.model.Loss(b); }),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr("must_agree of rank 1")));
  });
}

}  // namespace
}  // namespace ait
