// SPDX-License-Identifier: Apache-2.0
// The step when all goes well: sums, counts, schedule, report, stop, weights. What can go wrong is
// in trainer_faults_test.cc.
#include "ait/runtime/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <thread>

#include "ait/checkpoint/safetensors.h"
#include "ait/comm/thread_group.h"
#include "ait/observe/metrics_log.h"
#include "ait/optim/adam.h"
#include "ait/optim/sgd.h"
#include "runtime/toy_model.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Join;
using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyModel;
using ::ait::testing::ToyRank;
using ::testing::HasSubstr;

StatusOr<StepResult> Step(Trainer& trainer, const ToyRank& rank, const ToyBatch& batch) {
  return trainer.Step(batch, [&](const ToyBatch& b) { return rank.model.Loss(b); });
}

/// Weights of rank 0 after `steps` steps; rank r and micro-batch m of step s see `batch(s, r, m)`.
std::vector<float> Train(int ranks, int accumulate, int steps,
                         const std::function<ToyBatch(int step, int rank, int micro)>& batch) {
  std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks));
  RunRanks(ranks, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, AdamW{{.learning_rate = 0.01}},
                    {.clip_norm = 0.5, .accumulate = accumulate, .total_steps = steps});
    for (int call = 0; !trainer.done(); ++call) {
      const auto step =
          Step(trainer, rank, batch(call / accumulate, rank.rank(), call % accumulate));
      ASSERT_OK(step);
      const bool ends = (call + 1) % accumulate == 0;
      EXPECT_EQ(step->outcome, ends ? StepOutcome::kUpdated : StepOutcome::kAccumulated);
      EXPECT_EQ(step->metrics.loss.has_value(), ends);
      EXPECT_EQ(trainer.step(), (call + 1) / accumulate);
    }
    values[static_cast<std::size_t>(rank.rank())] = rank.model.Values();
  });
  for (const auto& others : values) EXPECT_EQ(others, values[0]);
  return values[0];
}

ToyBatch PartOf(int step, int part) { return MakeBatch(10 * step + part, 4 + part); }

TEST(Trainer, TwoRanksGiveTheBitsOfOneRankThatAccumulates) {
  const auto ranks = Train(2, 1, 20, [](int s, int rank, int) { return PartOf(s, rank); });
  const auto micro = Train(1, 2, 20, [](int s, int, int m) { return PartOf(s, m); });
  EXPECT_EQ(ranks, micro);
  EXPECT_NE(ranks, ToyModel().Values());
}

TEST(Trainer, AccumulationIsOneBigBatchWithinRounding) {
  const auto big =
      Train(1, 1, 20, [](int s, int, int) { return Join(PartOf(s, 0), PartOf(s, 1)); });
  const auto micro = Train(1, 2, 20, [](int s, int, int m) { return PartOf(s, m); });
  ASSERT_EQ(big.size(), micro.size());
  for (std::size_t i = 0; i < big.size(); ++i) EXPECT_NEAR(micro[i], big[i], 2e-5);
}

TEST(Trainer, LossIsTheMeanOverTokensOfAllRanksAndMicroBatches) {
  double sum = 0;
  std::int64_t count = 0;
  const ToyModel fresh;
  for (int part = 0; part < 4; ++part) {
    const LossSum loss = fresh.Loss(MakeBatch(part, 3 + 2 * part));
    sum += loss.sum.item<double>();
    count += loss.count;
  }
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}}, {.accumulate = 2});
    ASSERT_OK(Step(trainer, rank, MakeBatch(2 * rank.rank(), 3 + 4 * rank.rank())));
    const auto step = Step(trainer, rank, MakeBatch(2 * rank.rank() + 1, 5 + 4 * rank.rank()));
    ASSERT_OK(step);
    EXPECT_NEAR(step->metrics.loss.value(), sum / static_cast<double>(count), 1e-12);
    EXPECT_EQ(step->metrics.counters[0], (std::pair<std::string, std::int64_t>("tokens", count)));
  });
}

TEST(Trainer, ARankWithoutTokensTakesPart) {
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}});
    const auto step = Step(trainer, rank, MakeBatch(0, rank.rank() == 0 ? 4 : 0));
    ASSERT_OK(step);
    EXPECT_EQ(step->outcome, StepOutcome::kUpdated);
    EXPECT_EQ(step->metrics.counters[0].second, 4);
  });
}

TEST(Trainer, ClippingBoundsTheUpdate) {
  RunRanks(1, [&](ToyRank& rank) {
    const std::vector<float> before = rank.model.Values();
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 1}}, {.clip_norm = 0.01});
    const auto step = Step(trainer, rank, MakeBatch(0, 6));
    ASSERT_OK(step);
    ASSERT_GT(step->metrics.gradient_norm.value(), 0.1);  // of the gradient before clipping
    const std::vector<float> after = rank.model.Values();
    double squares = 0;
    for (std::size_t i = 0; i < after.size(); ++i)
      squares += std::pow(static_cast<double>(after[i]) - before[i], 2);
    EXPECT_NEAR(std::sqrt(squares), 0.01, 1e-5);
  });
}

TEST(Trainer, LearningRateFollowsTheScheduleFromStepZero) {
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(
        *rank.engine, Sgd{{.learning_rate = 0.5}},
        {.schedule = LinearSchedule{.warmup_steps = 2, .total_steps = 6}, .total_steps = 4});
    std::vector<double> rates;
    while (!trainer.done()) {
      const auto step = Step(trainer, rank, MakeBatch(0, 3));
      ASSERT_OK(step);
      rates.push_back(step->metrics.learning_rate.value());
    }
    EXPECT_THAT(rates, ::testing::ElementsAre(0.25, 0.5, 0.5, 0.375));
  });
}

TEST(Trainer, IsDoneAfterItsStepsAndSaysSoToALoopThatGoesOn) {
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.total_steps = 1});
    EXPECT_FALSE(trainer.done());
    ASSERT_OK(Step(trainer, rank, MakeBatch(0, 3)));
    EXPECT_TRUE(trainer.done());
    EXPECT_THAT(Step(trainer, rank, MakeBatch(0, 3)),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("done after step 1")));
    EXPECT_OK(trainer.status());
  });
}

TEST(Trainer, TheLossFunctionMayReturnAStatus) {
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    EXPECT_OK(trainer.Step(MakeBatch(0, 3), [&](const ToyBatch& b) -> StatusOr<LossSum> {
      return rank.model.Loss(b);
    }));
    EXPECT_THAT(trainer.Step(MakeBatch(0, 3),
                             [&](const ToyBatch&) -> StatusOr<LossSum> {
                               return DataLossError("shard 3 is damaged");
                             }),
                StatusIs(StatusCode::kDataLoss, HasSubstr("step 2: the loss "
                                                          "function failed: shard 3 is damaged")));
  });
}

TEST(Trainer, OneRankThatAsksForAStopStopsAllAtTheSameStep) {
  RunRanks(3, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.accumulate = 2});
    int calls = 0;
    while (!trainer.done()) {
      ASSERT_OK(Step(trainer, rank, MakeBatch(calls, 3)));
      if (++calls == 5 && rank.rank() == 1) trainer.RequestStop();  // in the middle of step 3
      ASSERT_LT(calls, 100);
    }
    EXPECT_EQ(trainer.step(), 3);
    EXPECT_EQ(calls, 6);
  });
}

std::atomic<Trainer*> signalled_trainer = nullptr;

TEST(Trainer, AStopMayBeAskedForInASignalHandler) {
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    signalled_trainer = &trainer;
    const auto before = std::signal(SIGUSR1, [](int) { signalled_trainer.load()->RequestStop(); });
    std::raise(SIGUSR1);
    std::signal(SIGUSR1, before);
    ASSERT_OK(Step(trainer, rank, MakeBatch(0, 3)));
    EXPECT_TRUE(trainer.done());
  });
}

TEST(Trainer, RankZeroKeepsMetricsAndProgress) {
  const TempDir dir;
  std::mutex mutex;
  std::string shown;
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.25}},
                    {.total_steps = 3,
                     .directory = dir / "deep/run",
                     .progress = {.write =
                                      [&](std::string_view text) {
                                        const std::lock_guard lock(mutex);
                                        shown += text;
                                      },
                                  .style = ProgressStyle::kPlain,
                                  .interval = Duration::zero()},
                     .steps_per_epoch = 2});
    while (!trainer.done()) ASSERT_OK(Step(trainer, rank, MakeBatch(trainer.step(), 5)));
    EXPECT_OK(trainer.metrics_status());
  });
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(dir / "deep/run/metrics.jsonl"));
  ASSERT_EQ(steps.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const StepMetrics& metrics = steps[static_cast<std::size_t>(i)];
    EXPECT_EQ(metrics.step, i + 1);
    EXPECT_EQ(metrics.total_steps, 3);
    EXPECT_DOUBLE_EQ(metrics.epoch.value(), (i + 1) / 2.0);
    EXPECT_GT(metrics.loss.value(), 0);
    EXPECT_EQ(metrics.learning_rate, 0.25);
    EXPECT_GT(metrics.gradient_norm.value(), 0);
    EXPECT_GT(metrics.tokens_per_second.value(), 0);
    EXPECT_GT(metrics.step_time.value(), Duration::zero());
    EXPECT_GE(metrics.exposed_communication.value(), 0);
    EXPECT_GT(metrics.host_memory.value(), MiB(1));
    EXPECT_GE(metrics.remaining.value(), Duration::zero());
    EXPECT_EQ(metrics.counters[0].second, 10);
    EXPECT_EQ(metrics.counters[4], (std::pair<std::string, std::int64_t>("unreduced_buckets", 0)));
  }
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 3);
  EXPECT_TRUE(shown.starts_with("step 1/3  epoch 0.50  loss ")) << shown;
}

TEST(Trainer, TimesThatTheClockCannotTellAreUnknown) {
  ManualClock clock;
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.clock = &clock});
    const auto still = Step(trainer, rank, MakeBatch(0, 5));
    ASSERT_OK(still);
    EXPECT_FALSE(still->metrics.tokens_per_second.has_value());
    EXPECT_FALSE(still->metrics.epoch.has_value());
    EXPECT_FALSE(still->metrics.remaining.has_value());
    clock.Advance(std::chrono::milliseconds(250));
    const auto moved = Step(trainer, rank, MakeBatch(0, 5));
    ASSERT_OK(moved);
    EXPECT_EQ(moved->metrics.step_time, std::chrono::milliseconds(250));
    EXPECT_DOUBLE_EQ(moved->metrics.tokens_per_second.value(), 20);
    EXPECT_EQ(moved->metrics.elapsed, std::chrono::milliseconds(250));
  });
}

TEST(Trainer, TimeLeftFollowsTheFractionOfTheRunThatIsDone) {
  ManualClock clock;
  RunRanks(1, [&](ToyRank& rank) {
    double done = 0;
    Trainer trainer(*rank.engine, Sgd{},
                    {.progress_fraction = [&done] { return done; }, .clock = &clock});
    const auto left_at = [&](double fraction) {
      done = fraction;
      return trainer
          .Step(MakeBatch(0, 5),
                [&](const ToyBatch& b) {
                  const LossSum loss = rank.model.Loss(b);
                  clock.Advance(std::chrono::seconds(10));
                  return loss;
                })
          .value()
          .metrics.remaining;
    };
    EXPECT_EQ(left_at(0), std::nullopt);
    EXPECT_EQ(left_at(0.25), std::chrono::seconds(60));  // 20 s for a quarter
    EXPECT_EQ(left_at(0.5), std::chrono::seconds(30));
    EXPECT_EQ(left_at(2), std::chrono::seconds(0));
    EXPECT_EQ(left_at(NAN), std::nullopt);
    EXPECT_EQ(left_at(-1), std::nullopt);
    EXPECT_EQ(left_at(1e-300), std::nullopt);
  });
}

TEST(Trainer, TheWaitForDataIsAPartOfTheStep) {
  ManualClock clock;
  RunRanks(1, [&](ToyRank& rank) {
    Duration wait = std::chrono::seconds(0);
    Trainer trainer(
        *rank.engine, Sgd{},
        {.data_wait = [&] { return std::exchange(wait, Duration::zero()); }, .clock = &clock});
    for (const double part : {0.0, 0.25, 0.0}) {
      wait = std::chrono::milliseconds(static_cast<int>(part * 100));
      const auto step = trainer.Step(MakeBatch(0, 5), [&](const ToyBatch& b) {
        clock.Advance(std::chrono::milliseconds(100));
        return rank.model.Loss(b);
      });
      ASSERT_OK(step);
      EXPECT_DOUBLE_EQ(step->metrics.data_wait.value(), part);
    }
  });
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    const auto step = Step(trainer, rank, MakeBatch(0, 5));
    ASSERT_OK(step);
    EXPECT_EQ(step->metrics.data_wait, std::nullopt) << "nobody measured it";
  });
}

TEST(Trainer, SaveGivesAllRanksTheBuffersOfRankZero) {
  const TempDir dir;
  const auto group = MakeThreadGroup(WorldSize(2), {.timeout = std::chrono::seconds(20)});
  std::vector<std::thread> threads;
  for (const auto& communicator : group) {
    threads.emplace_back([&dir, communicator] {
      const ToyModel model;
      std::vector<float> statistics = {0, 0};
      NamedTensors buffers;
      buffers.Add("running_mean", TensorOver(View(statistics)));
      const auto engine =
          DataParallel::Create(communicator, model.Parameters(), {.buffers = buffers}).value();
      Trainer trainer(*engine, Sgd{});
      const auto rank = static_cast<float>(communicator->rank().value());
      ASSERT_OK(trainer.Step(MakeBatch(0, 5), [&](const ToyBatch& b) {
        statistics = {5 + rank, 7 + rank};  // each from its own data
        return model.Loss(b);
      }));
      ASSERT_OK(trainer.Save(dir / "f"));
      EXPECT_THAT(statistics, ::testing::ElementsAre(5, 7));
      statistics = {0, 0};
      ASSERT_OK(trainer.Load(dir / "f"));
      EXPECT_THAT(statistics, ::testing::ElementsAre(5, 7));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Trainer, SaveAndLoadKeepTheWeightsOfAllRanks) {
  const TempDir dir;
  std::vector<float> trained;
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}}, {.directory = dir.path()});
    ASSERT_OK(Step(trainer, rank, MakeBatch(rank.rank(), 5)));
    ASSERT_OK(trainer.Save());
    if (rank.rank() == 0) trained = rank.model.Values();
  });
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(dir / "weights.safetensors"));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "embedding");
  RunRanks(2, [&](ToyRank& rank) {
    EXPECT_NE(rank.model.Values(), trained);
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}});
    ASSERT_OK(trainer.Load(dir / "weights.safetensors"));
    EXPECT_EQ(rank.model.Values(), trained);
    ASSERT_OK(Step(trainer, rank, MakeBatch(rank.rank(), 5)));  // the gradients still fit
    ASSERT_OK(trainer.Save(dir / "other"));
  });
  EXPECT_TRUE(std::filesystem::exists(dir / "other"));
}

}  // namespace
}  // namespace ait
