// SPDX-License-Identifier: Apache-2.0
// The step when something goes wrong: no rank is left waiting, and the error says which rank, which
// step and what.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>

#include "ait/base/log.h"
#include "ait/checkpoint/safetensors.h"
#include "ait/observe/metrics_log.h"
#include "ait/optim/adam.h"
#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Fault;
using ::ait::testing::MakeBatch;
using ::ait::testing::Process;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyModel;
using ::ait::testing::ToyRank;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

StatusOr<StepResult> Step(Trainer& trainer, const ToyRank& rank, Fault fault = Fault::kNone) {
  return trainer.Step(MakeBatch(static_cast<int>(trainer.step()) + rank.rank(), 5),
                      [&](const ToyBatch& b) { return rank.model.Loss(b, fault); });
}

/// Keeps what it hears.
class Recorder final : public LogSink {
 public:
  void Write(Severity severity, std::string_view component, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    text_ += StrCat(Name(severity), " ", component, ": ", message, "\n");
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

TEST(Trainer, ALossThatIsNotFiniteOnOneRankIsSkippedByAll) {
  const TempDir dir;
  Recorder log;
  RunRanks(3, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}},
                    {.directory = dir.path(), .log = &log});
    ASSERT_OK(Step(trainer, rank));
    const std::vector<float> before = rank.model.Values();
    const auto skipped = Step(trainer, rank, rank.rank() == 1 ? Fault::kNanLoss : Fault::kNone);
    ASSERT_OK(skipped);
    EXPECT_EQ(skipped->outcome, StepOutcome::kSkipped);
    EXPECT_TRUE(std::isnan(skipped->metrics.loss.value()));
    EXPECT_EQ(skipped->metrics.skipped_steps, 1);
    EXPECT_EQ(rank.model.Values(), before);
    const auto next = Step(trainer, rank);
    ASSERT_OK(next);
    EXPECT_EQ(next->outcome, StepOutcome::kUpdated);
    EXPECT_TRUE(std::isfinite(next->metrics.loss.value()));
    EXPECT_NE(rank.model.Values(), before);
    EXPECT_EQ(trainer.step(), 3);
  });
  EXPECT_EQ(log.text(),
            "warning runtime: step 2 was skipped: the loss of rank 1 is not finite (the sum over "
            "all is nan)\n");
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(dir / "metrics.jsonl"));
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_TRUE(std::isnan(steps[1].loss.value()));
  EXPECT_EQ(steps[2].skipped_steps, 1);
}

TEST(Trainer, AGradientThatIsNotFiniteIsSkippedAndItsParameterNamed) {
  Recorder log;
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.log = &log});
    const std::vector<float> before = rank.model.Values();
    const auto skipped = Step(trainer, rank, rank.rank() == 0 ? Fault::kNanGradient : Fault::kNone);
    ASSERT_OK(skipped);
    EXPECT_EQ(skipped->outcome, StepOutcome::kSkipped);
    EXPECT_TRUE(std::isfinite(skipped->metrics.loss.value()));
    EXPECT_EQ(rank.model.Values(), before);
  });
  EXPECT_THAT(log.text(), HasSubstr("the gradient of parameter output is not finite"));
}

TEST(Trainer, TooManySkippedStepsInARowAreAnErrorOnAllRanks) {
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.nonfinite_limit = 2});
    const Fault fault = rank.rank() == 1 ? Fault::kNanLoss : Fault::kNone;
    for (int round = 0; round < 2; ++round) {
      ASSERT_OK(Step(trainer, rank, fault));
      ASSERT_OK(Step(trainer, rank, fault));
      ASSERT_OK(Step(trainer, rank));  // a good one: the count starts again
    }
    ASSERT_OK(Step(trainer, rank, fault));
    ASSERT_OK(Step(trainer, rank, fault));
    const auto failed = Step(trainer, rank, fault);
    EXPECT_THAT(failed,
                StatusIs(StatusCode::kOutOfRange,
                         AllOf(HasSubstr("step 9 was skipped: the loss of rank 1 is not finite"),
                               HasSubstr("number 3 in a row, allowed are 2"))));
    EXPECT_EQ(Step(trainer, rank).status(), failed.status());
    EXPECT_EQ(trainer.status(), failed.status());
  });
}

TEST(Trainer, AnExceptionOnOneRankEndsAllAndNamesIt) {
  RunRanks(3, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    ASSERT_OK(Step(trainer, rank));
    const bool is_faulty = rank.rank() == 2;
    const auto failed = Step(trainer, rank, is_faulty ? Fault::kThrow : Fault::kNone);
    if (is_faulty) {
      EXPECT_THAT(failed,
                  StatusIs(StatusCode::kUnknown, HasSubstr("rank 2: step 2: the loss function "
                                                           "failed: the model is unwell")));
    } else {
      EXPECT_THAT(failed, StatusIs(StatusCode::kAborted, HasSubstr("the model is unwell")));
    }
    EXPECT_FALSE(Step(trainer, rank).ok());
  });
}

// The peers wait in the groups of hybrid sharding, not in the communicator of all.
TEST(Trainer, AnExceptionOnOneRankEndsAllGroupsOfHybridSharding) {
  for (const ReduceWhen reduce : {ReduceWhen::kOnce, ReduceWhen::kEachMicroStep}) {
    RunRanks(
        4,
        [&](ToyRank& rank) {
          const Time begin = SystemClock().now();
          Trainer trainer(*rank.engine, Sgd{}, {.accumulate = 2});
          ASSERT_OK(Step(trainer, rank));
          ASSERT_OK(Step(trainer, rank));
          const bool is_faulty = rank.rank() == 1;
          auto failed = Step(trainer, rank, is_faulty ? Fault::kThrow : Fault::kNone);
          if (failed.ok()) failed = Step(trainer, rank);
          const StatusCode code = is_faulty ? StatusCode::kUnknown : StatusCode::kAborted;
          EXPECT_THAT(failed, StatusIs(code, HasSubstr("the model is unwell")));
          EXPECT_FALSE(rank.engine->status().ok());
          EXPECT_LT(SystemClock().now() - begin, std::chrono::seconds(15)) << "a time-out is 20 s";
        },
        {.zero_stage = ZeroStage::kGradients, .reduce = reduce},
        [](Communicator& all, DataParallelOptions& options) {
          const int number = all.rank().value();
          options.hybrid.shard = all.Split(number / 2, number).value();
          options.hybrid.replicate = all.Split(number % 2, number).value();
        });
  }
}

TEST(Trainer, ATokenThatTheModelHasNoPlaceForIsAnError) {
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    ToyBatch batch = MakeBatch(0, 3);
    batch.inputs[1] = ToyModel::kVocabulary;
    EXPECT_THAT(trainer.Step(batch, [&](const ToyBatch& b) { return rank.model.Loss(b); }),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 0: step 1"), HasSubstr("out of range"))));
  });
}

TEST(Trainer, ALossThatIsNotOneTrainableNumberIsExplained) {
  const auto message_of = [](Fault fault) {
    Status status;
    RunRanks(1, [&](ToyRank& rank) {
      Trainer trainer(*rank.engine, Sgd{});
      status = Step(trainer, rank, fault).status();
    });
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_THAT(message_of(Fault::kVector), HasSubstr("30 elements, it must be one number: sum it"));
  EXPECT_THAT(message_of(Fault::kNoGraph), HasSubstr("does not depend on a parameter"));
}

TEST(Trainer, CountsMustMakeSense) {
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    EXPECT_THAT(trainer.Step(MakeBatch(0, 3),
                             [&](const ToyBatch& b) {
                               return LossSum{.sum = rank.model.Loss(b).sum, .count = -1};
                             }),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("count of the loss is -1")));
  });
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    EXPECT_THAT(
        trainer.Step(MakeBatch(0, 0), [&](const ToyBatch& b) { return rank.model.Loss(b); }),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr("counted 0")));
  });
}

TEST(Trainer, OptionsThatDifferBetweenRanksAreNoticedInTheFirstStep) {
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.clip_norm = rank.rank() == 0 ? 1.0 : 2.0});
    EXPECT_THAT(Step(trainer, rank), StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 1")));
  });
}

TEST(Trainer, OptimizersThatDifferBetweenRanksAreNoticedInTheFirstStep) {
  RunRanks(2, [&](ToyRank& rank) {
    const std::vector<float> before = rank.model.Values();
    const auto differs = StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 1"));
    {  // the same rate, another algorithm
      const AdamW adam{{.learning_rate = 0.1}};
      const Sgd sgd{{.learning_rate = 0.1}};
      Trainer trainer(*rank.engine, rank.rank() == 0 ? static_cast<const Optimizer&>(adam) : sgd);
      EXPECT_THAT(Step(trainer, rank), differs);
    }
    {  // the same rate, another option
      Trainer trainer(*rank.engine, Sgd{{.momentum = rank.rank() == 0 ? 0.8 : 0.9}});
      EXPECT_THAT(Step(trainer, rank), differs);
    }
    {  // other groups
      const ParameterGroup group{.name = "output", .pattern = "output", .weight_decay = 0.1};
      Trainer trainer(*rank.engine,
                      Sgd({}, rank.rank() == 0 ? ParameterGroups{} : ParameterGroups{group}));
      EXPECT_THAT(Step(trainer, rank), differs);
    }
    EXPECT_EQ(rank.model.Values(), before);
  });
}

TEST(Trainer, AfterADisagreementTheEngineServesTheNextTrainer) {
  RunRanks(2, [&](ToyRank& rank) {
    std::optional<Trainer> failed(std::in_place, *rank.engine, Sgd{},
                                  TrainerOptions{.clip_norm = 1.0 + rank.rank()});
    EXPECT_FALSE(Step(*failed, rank).ok());
    {
      Trainer trainer(*rank.engine, Sgd{});  // while the other is still there
      EXPECT_OK(Step(trainer, rank));
    }
    failed.reset();
    {
      Trainer trainer(*rank.engine, Sgd{});
      EXPECT_THAT(
          trainer.Step(MakeBatch(0, 0), [&](const ToyBatch& b) { return rank.model.Loss(b); }),
          StatusIs(StatusCode::kInvalidArgument, HasSubstr("counted 0")));
    }
    Trainer trainer(*rank.engine, Sgd{});
    EXPECT_OK(Step(trainer, rank));
    EXPECT_OK(Step(trainer, rank));
  });
}

TEST(Trainer, ALoadThatFailsOnOneRankChangesNoRank) {
  const TempDir dir;
  RunRanks(3, [&](ToyRank& rank) {
    const std::vector<float> start = rank.model.Values();
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}});
    ASSERT_OK(trainer.Save(dir / "start"));
    ASSERT_OK(Step(trainer, rank));
    const std::vector<float> trained = rank.model.Values();
    ASSERT_NE(trained, start);
    const Status loaded = trainer.Load(dir / (rank.rank() == 1 ? "gone" : "start"));
    EXPECT_THAT(loaded,
                StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("rank 1: "), HasSubstr("/gone"))));
    EXPECT_EQ(rank.model.Values(), trained);
    EXPECT_OK(trainer.status());
    ASSERT_OK(Step(trainer, rank));  // nobody is left behind
    ASSERT_OK(trainer.Load(dir / "start"));
    EXPECT_EQ(rank.model.Values(), start);
  });
}

TEST(Trainer, AParameterGroupThatSelectsNothingIsNamed) {
  RunRanks(2, [&](ToyRank& rank) {
    const Sgd optimizer({}, {{.name = "head", .pattern = "head.*", .learning_rate = 1}});
    Trainer trainer(*rank.engine, optimizer);
    const auto step = Step(trainer, rank);
    EXPECT_FALSE(step.ok());
    EXPECT_THAT(Message(step.status()),
                HasSubstr("\"head\" with pattern \"head.*\" selects none of the 2 parameters"));
  });
}

TEST(Trainer, WrongOptionsAreNamed) {
  RunRanks(1, [&](ToyRank& rank) {
    const auto status_of = [&](TrainerOptions options) {
      return Trainer(*rank.engine, Sgd{}, std::move(options)).status();
    };
    const auto names = [](const char* option) {
      return StatusIs(StatusCode::kInvalidArgument, HasSubstr(option));
    };
    EXPECT_THAT(status_of({.clip_norm = 0}), names("clip_norm is 0"));
    EXPECT_THAT(status_of({.clip_norm = NAN}), names("clip_norm is nan"));
    EXPECT_THAT(status_of({.accumulate = 0}), names("accumulate is 0"));
    EXPECT_THAT(status_of({.schedule = LinearSchedule{.warmup_steps = -1}}), names("schedule"));
    EXPECT_THAT(status_of({.total_steps = 0}), names("total_steps is 0"));
    EXPECT_THAT(status_of({.nonfinite_limit = -1}), names("nonfinite_limit is -1"));
    EXPECT_THAT(status_of({.steps_per_epoch = 0}), names("steps_per_epoch is 0"));
    EXPECT_THAT(Trainer(*rank.engine, Sgd{{.learning_rate = -1}}).status(), names("-1"));
  });
}

TEST(Trainer, ADirectoryThatRankZeroCannotMakeEndsAllRanks) {
  const TempDir dir;
  std::ofstream(dir / "file") << "in the way";
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.directory = dir / "file/run"});
    const auto step = Step(trainer, rank);
    EXPECT_FALSE(step.ok());
    EXPECT_THAT(Message(step.status()), HasSubstr("cannot make the run's directory"));
  });
}

TEST(Trainer, MetricsOnAFullDiskDoNotStopTheTraining) {
  const TempDir dir;
  Recorder log;
  std::filesystem::create_symlink("/dev/full", dir / "metrics.jsonl");
  RunRanks(1, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{}, {.directory = dir.path(), .log = &log});
    ASSERT_OK(Step(trainer, rank));
    ASSERT_OK(Step(trainer, rank));
    EXPECT_THAT(trainer.metrics_status(),
                StatusIs(StatusCode::kResourceExhausted, HasSubstr("step 2")));
  });
  EXPECT_THAT(log.text(), HasSubstr("cannot append step 1"));
  EXPECT_EQ(log.text().find("step 2"), std::string::npos);  // told once
}

TEST(Trainer, ASaveThatFailsOnRankZeroFailsOnAll) {
  const TempDir dir;
  RunRanks(2, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{});
    ASSERT_OK(Step(trainer, rank));
    EXPECT_THAT(trainer.Save(dir / "gone/weights"),
                StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("rank 0"), HasSubstr("gone"))));
    EXPECT_THAT(trainer.Save(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no path")));
    EXPECT_THAT(trainer.Load(dir / "gone"),
                StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("rank 0"), HasSubstr("gone"))));
    EXPECT_OK(Step(trainer, rank));  // training can go on
  });
}

TEST(Trainer, CtrlCStopsBothRanksAndTheFilesAreWhole) {
  const TempDir dir;
  auto program = Process::Spawn({.program = AIT_TEST_TRAINING, .args = {dir.path()}});
  program.ReadUntil("step 5");
  program.Signal(SIGINT);
  program.ExpectExit(0, "saved after step");
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(dir / "metrics.jsonl"));
  EXPECT_GE(steps.size(), 5u);
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(dir / "weights.safetensors"));
  EXPECT_EQ(file.tensors().size(), 2u);
}

TEST(Trainer, AKilledRunLeavesWholeWeightsAndMetrics) {
  const TempDir dir;
  auto program = Process::Spawn({.program = AIT_TEST_TRAINING, .args = {dir.path(), "save"}});
  program.ReadUntil("step 5");
  program.Signal(SIGKILL);
  program.Wait();
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(dir / "metrics.jsonl"));
  EXPECT_GE(steps.size(), 5u);
  ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(dir / "weights.safetensors"));
  EXPECT_EQ(file.tensors().size(), 2u);
  // The next run goes on in the same directory.
  auto next = Process::Spawn({.program = AIT_TEST_TRAINING, .args = {dir.path()}});
  next.ReadUntil("step 2");
  next.Signal(SIGINT);
  next.ExpectExit(0, "saved after step");
  ASSERT_OK_AND_ASSIGN(const auto more, ReadMetricsLog(dir / "metrics.jsonl"));
  EXPECT_GT(more.size(), steps.size());
}

}  // namespace
}  // namespace ait
