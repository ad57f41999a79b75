// SPDX-License-Identifier: Apache-2.0
// Steps of fp16: the loss scale, what overflows, and who must agree on it.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <optional>

#include "ait/base/log.h"
#include "ait/observe/metrics_log.h"
#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/autocast.h"
#include "runtime/toy_model.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Fault;
using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyRank;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The loss of a toy, with an infinite slope at all elements of the parameter `bad`, if it is one.
LossSum Loss(const ToyRank& rank, const ToyBatch& batch, int bad = -1) {
  LossSum loss = rank.model.Loss(batch);
  if (bad < 0) return loss;
  const at::Tensor parameter = rank.model.Parameters().tensor(static_cast<std::size_t>(bad));
  loss.sum = loss.sum.add(parameter.mul(0).sum().sqrt());
  return loss;
}

StatusOr<StepResult> Step(Trainer& trainer, const ToyRank& rank, int bad = -1) {
  return trainer.Step(MakeBatch(static_cast<int>(trainer.step()) + rank.rank(), 5),
                      [&](const ToyBatch& b) { return Loss(rank, b, bad); });
}

TrainerOptions Fp16(LossScalerOptions scaler) {
  return {.autocast = DType::kFloat16, .loss_scaler = scaler};
}

/// Outcomes and scales of the steps of every rank.
struct Record {
  std::vector<StepOutcome> outcomes;
  std::vector<double> scales, rates;
  std::vector<float> values;
  bool operator==(const Record&) const = default;
};

/// Eight steps of two micro-batches; in step 4 the gradient of parameter `bad` is not finite, on
/// rank `bad_rank` in micro-step `bad_micro`.
std::vector<Record> TrainWithOverflow(int ranks, int bad_rank, int bad_micro, int bad) {
  std::vector<Record> runs(static_cast<std::size_t>(ranks));
  RunRanks(ranks, [&](ToyRank& rank) {
    TrainerOptions options = Fp16({.initial_scale = 1024, .growth_interval = 3});
    options.accumulate = 2;
    options.schedule = LinearSchedule{.total_steps = 16};
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 1.0 / 16}}, options);
    Record& run = runs[static_cast<std::size_t>(rank.rank())];
    for (int call = 0; call < 16; ++call) {
      const bool overflows = call / 2 == 4 && call % 2 == bad_micro && rank.rank() == bad_rank;
      const auto step = Step(trainer, rank, overflows ? bad : -1);
      ASSERT_OK(step);
      if (step->outcome == StepOutcome::kAccumulated) continue;
      run.outcomes.push_back(step->outcome);
      run.scales.push_back(step->metrics.loss_scale.value());
      run.rates.push_back(step->metrics.learning_rate.value() * 256);
      EXPECT_EQ(step->metrics.skipped_steps, call / 2 >= 4 && bad_rank >= 0 ? 1 : 0);
    }
    EXPECT_EQ(trainer.updates(), bad_rank < 0 ? 8 : 7);
    run.values = rank.model.Values();
  });
  return runs;
}

TEST(TrainerScaling, AnOverflowOnOneRankInOneShardInOneMicroStepIsSkippedByAll) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::optional<std::vector<float>> values;
    for (const int bad_rank : {0, ranks - 1}) {
      for (const int bad_micro : {0, 1}) {
        for (const int bad : {0, 1}) {  // parameters that different ranks own
          const std::vector<Record> runs = TrainWithOverflow(ranks, bad_rank, bad_micro, bad);
          EXPECT_THAT(runs, Each(runs[0])) << "all ranks have the same";
          std::vector<StepOutcome> outcomes(8, StepOutcome::kUpdated);
          outcomes[4] = StepOutcome::kSkipped;
          EXPECT_EQ(runs[0].outcomes, outcomes);
          EXPECT_THAT(runs[0].scales, ElementsAre(1024, 1024, 1024, 2048, 2048, 1024, 1024, 1024));
          EXPECT_THAT(runs[0].rates, ElementsAre(16, 15, 14, 13, 12, 12, 11, 10))
              << "the schedule stands still in a skipped step";
          if (!values) values = runs[0].values;
          EXPECT_EQ(runs[0].values, *values) << "wherever it was";
        }
      }
    }
  }
}

TEST(TrainerScaling, CleanStepsAreNeverSkipped) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<Record> runs = TrainWithOverflow(ranks, -1, 0, 0);
    EXPECT_THAT(runs, Each(runs[0]));
    EXPECT_THAT(runs[0].outcomes, Each(StepOutcome::kUpdated));
    EXPECT_THAT(runs[0].scales, ElementsAre(1024, 1024, 1024, 2048, 2048, 2048, 4096, 4096));
  }
}

TEST(TrainerScaling, TheScaleComesDownUntilTheGradientsFitIntoFp16) {
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}},
                    Fp16({.initial_scale = 0x1p24, .max_scale = 0x1p24}));
    const std::vector<float> before = rank.model.Values();
    int skipped = 0;
    for (;; ++skipped) {
      const auto step = Step(trainer, rank);
      ASSERT_OK(step);
      EXPECT_EQ(step->metrics.loss_scale, std::ldexp(1, 24 - skipped));
      if (step->outcome == StepOutcome::kUpdated) break;
      EXPECT_EQ(rank.model.Values(), before);
      EXPECT_EQ(step->metrics.learning_rate, 0.1);
    }
    EXPECT_GE(skipped, 8) << "65504 is the largest fp16, and gradients are about 1";
    EXPECT_EQ(trainer.updates(), 1);
    EXPECT_EQ(trainer.step(), skipped + 1);
    EXPECT_NE(rank.model.Values(), before);
  });
}

TEST(TrainerScaling, ScalesThatArePowersOfTwoGiveTheSameBits) {
  std::vector<std::vector<float>> values;
  std::vector<double> norms;
  for (const double scale : {256.0, 1024.0, 4096.0}) {
    RunRanks(1, [&](ToyRank& rank) {
      TrainerOptions options = Fp16(LossScalerOptions::Static(scale));
      options.clip_norm = 0.25;
      Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.5}}, options);
      double norm = 0;
      for (int i = 0; i < 5; ++i) {
        const auto step = Step(trainer, rank);
        ASSERT_OK(step);
        norm = step->metrics.gradient_norm.value();
        EXPECT_GT(norm, 0.25) << "clipped by the norm of what is not scaled";
      }
      norms.push_back(norm);
      values.push_back(rank.model.Values());
    });
  }
  EXPECT_THAT(values, Each(values[0]));
  EXPECT_THAT(norms, Each(norms[0]));
}

TEST(TrainerScaling, TooManyOverflowsInARowAreAnErrorOfAllRanksThatSaysWhatToDo) {
  RunRanks(3, [&](ToyRank& rank) {
    TrainerOptions options = Fp16({.initial_scale = 4, .skip_limit = 3});
    options.nonfinite_limit = 0;  // for losses that are not finite
    Trainer trainer(*rank.engine, Sgd{}, options);
    const int bad = rank.rank() == 1 ? 1 : -1;
    for (int i = 0; i < 3; ++i) ASSERT_OK(Step(trainer, rank, bad));
    const auto failed = Step(trainer, rank, bad);
    EXPECT_THAT(failed,
                StatusIs(StatusCode::kOutOfRange,
                         AllOf(HasSubstr("step 4 was skipped: the gradient of parameter output"),
                               HasSubstr("4 steps in a row, allowed are 3"),
                               HasSubstr("the last loss scale was 1, the least allowed"))));
    EXPECT_EQ(trainer.status(), failed.status());
  });
}

TEST(TrainerScaling, ALossThatIsNotFiniteSaysNothingAboutTheScale) {
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, Fp16({.initial_scale = 8}));
    const auto skipped = trainer.Step(MakeBatch(0, 5), [&](const ToyBatch& b) {
      return rank.model.Loss(b, rank.rank() == 1 ? Fault::kNanLoss : Fault::kNone);
    });
    ASSERT_OK(skipped);
    EXPECT_EQ(skipped->outcome, StepOutcome::kSkipped);
    EXPECT_EQ(trainer.state().loss_scaler->scale, 8);
    EXPECT_EQ(trainer.state().loss_scaler->skipped, 0);
  });
}

class Recorder final : public LogSink {
 public:
  void Write(Severity, std::string_view, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    text_ += StrCat(message, "\n");
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

TEST(TrainerScaling, LogAndMetricsShowTheScale) {
  const TempDir dir;
  Recorder log;
  RunRanks(2, [&](ToyRank& rank) {
    TrainerOptions options = Fp16({.initial_scale = 512});
    options.directory = dir.path();
    options.log = &log;
    Trainer trainer(*rank.engine, Sgd{}, options);
    ASSERT_OK(Step(trainer, rank, rank.rank() == 0 ? 0 : -1));
    ASSERT_OK(Step(trainer, rank));
  });
  EXPECT_EQ(log.text(),
            "step 1 was skipped: the gradient of parameter embedding is not finite; the loss scale "
            "is 256 now\n");
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(dir / "metrics.jsonl"));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].loss_scale, 512);
  EXPECT_EQ(steps[0].skipped_steps, 1);
  EXPECT_EQ(steps[1].loss_scale, 256);
}

TEST(TrainerScaling, Fp16WithoutAScalerIsRefusedHoweverItComes) {
  const auto refused = [](const Status& status) {
    EXPECT_THAT(status,
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("autocast is float16, and there is no loss scaler"),
                               HasSubstr("set TrainerOptions::loss_scaler, or use bfloat16"))));
  };
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.autocast = DType::kFloat16});
    refused(trainer.status());  // known before any forward
    refused(Step(trainer, rank).status());
  });
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    refused(trainer
                .Step(MakeBatch(0, 5),
                      [&](const ToyBatch& b) {
                        const Autocast own(DType::kFloat16);
                        return rank.model.Loss(b);
                      })
                .status());
  });
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    const Autocast outer(DType::kFloat16);
    refused(Step(trainer, rank).status());
  });
}

TEST(TrainerScaling, AScalerWithoutFp16IsRefused) {
  for (const auto& autocast : {std::optional<DType>(), std::optional(DType::kBFloat16)}) {
    RunRanks(1, [&](ToyRank& rank) {
      Trainer trainer(*rank.engine, Sgd{},
                      {.autocast = autocast, .loss_scaler = LossScalerOptions()});
      EXPECT_THAT(Step(trainer, rank),
                  StatusIs(StatusCode::kInvalidArgument,
                           HasSubstr("neither the parameters nor autocast are float16")));
    });
  }
}

TEST(TrainerScaling, Bf16AutocastTrainsWithoutAScale) {
  RunRanks(2, [&](ToyRank& rank) {
    const std::vector<float> before = rank.model.Values();
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}}, {.autocast = DType::kBFloat16});
    const auto step = trainer.Step(MakeBatch(rank.rank(), 5), [&](const ToyBatch& b) {
      EXPECT_EQ(Autocast::Current(), DType::kBFloat16);
      return rank.model.Loss(b);
    });
    ASSERT_OK(step);
    EXPECT_EQ(Autocast::Current(), DType::kFloat32);
    EXPECT_FALSE(step->metrics.loss_scale.has_value());
    EXPECT_NE(rank.model.Values(), before);
  });
}

TEST(TrainerScaling, ScalersThatDifferBetweenRanksAreNoticedInTheFirstStep) {
  RunRanks(3, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, Fp16({.initial_scale = rank.rank() == 2 ? 8.0 : 4.0}));
    EXPECT_THAT(Step(trainer, rank),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("must_agree of rank 2")));
  });
}

}  // namespace
}  // namespace ait
