// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/data_parallel.h"

#include <cmath>
#include <limits>
#include <mutex>

#include "ait/optim/adam.h"
#include "ait/optim/norm.h"
#include "ait/optim/sgd.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Alone;
using ::ait::testing::Flatten;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TinyModel;
using ::ait::testing::Tokens;
using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 6;  // of a micro-batch

std::unique_ptr<DataParallel> Engine(const std::shared_ptr<Communicator>& communicator,
                                     const NamedTensors& parameters,
                                     DataParallelOptions options = {}) {
  auto engine = DataParallel::Create(communicator, parameters, std::move(options));
  EXPECT_OK(engine);
  return engine.ok() ? *std::move(engine) : nullptr;
}

struct Trained {
  std::vector<float> parameters;
  std::vector<double> norms;
  std::vector<double> losses;
};

// Trains `steps` steps on the same stream of micro-batches: `global` of them a step, divided among
// the ranks so that rank r takes the micro-batches r, r + ranks, ….
Trained Train(const std::shared_ptr<Communicator>& communicator, int steps, int global,
              const DataParallelOptions& options = {}, double clip = 1.0) {
  TinyModel model(1 + communicator->rank().value());  // differs: rank 0 wins
  auto engine = Engine(communicator, model.Parameters(), options);
  EXPECT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  const int ranks = communicator->size().value();
  Trained run;
  for (int step = 0; step < steps; ++step) {
    double loss_sum = 0;
    for (int m = communicator->rank().value(); m < global; m += ranks) {
      const bool last = m + ranks >= global;
      EXPECT_OK(engine->BeginMicroStep(last ? MicroStep::kLast : MicroStep::kAccumulate));
      const int seed = step * global + m;
      const at::Tensor tokens = Tokens(kTokens, seed);
      const at::Tensor loss =
          model.Loss(tokens, tokens.mul(3).add(1).remainder(TinyModel::kVocabulary));
      loss_sum += loss.item<double>();
      EXPECT_OK(engine->Backward(loss));
    }
    auto summary =
        engine->FinishGradients({.count = kTokens * global / ranks, .loss_sum = loss_sum});
    EXPECT_OK(summary);
    if (!summary.ok()) return run;
    run.norms.push_back(summary->norm);
    run.losses.push_back(summary->loss_sum / static_cast<double>(summary->count));
    EXPECT_OK(engine->Update(
        {.gradient_scale = ClipFactor(summary->norm, clip) / static_cast<double>(summary->count)}));
  }
  run.parameters = Flatten(model.Parameters());
  return run;
}

std::vector<Trained> TrainRanks(int ranks, int steps, int global,
                                const DataParallelOptions& options = {}) {
  std::vector<Trained> runs(static_cast<std::size_t>(ranks));
  RunRanks(ranks, [&](std::shared_ptr<Communicator> communicator) {
    runs[static_cast<std::size_t>(communicator->rank().value())] =
        Train(communicator, steps, global, options);
  });
  return runs;
}

TEST(DataParallel, TwoRanksEqualOneThatAccumulatesTwoBitForBit) {
  const Trained one = Train(Alone(), 50, 2);
  const std::vector<Trained> two = TrainRanks(2, 50, 2);
  EXPECT_EQ(two[0].parameters, one.parameters);
  EXPECT_EQ(two[1].parameters, one.parameters);
  EXPECT_EQ(two[0].norms, one.norms);
  EXPECT_EQ(two[1].norms, one.norms);
  EXPECT_LT(one.losses.back(), one.losses.front());
}

TEST(DataParallel, ManyRanksEqualOneWithinRounding) {
  const Trained one = Train(Alone(), 50, 8);
  for (const int ranks : {2, 4, 8}) {
    const std::vector<Trained> runs = TrainRanks(ranks, 50, 8);
    ASSERT_EQ(runs[0].parameters.size(), one.parameters.size());
    double difference = 0;
    double length = 0;
    for (std::size_t i = 0; i < one.parameters.size(); ++i) {
      difference += std::pow(runs[0].parameters[i] - one.parameters[i], 2);
      length += std::pow(one.parameters[i], 2);
    }
    EXPECT_LE(std::sqrt(difference / length), 1e-6) << ranks;
    for (const Trained& run : runs) EXPECT_EQ(run.parameters, runs[0].parameters) << ranks;
  }
}

TEST(DataParallel, BucketSizesChangeNoBit) {
  for (const int ranks : {2, 3}) {
    const Trained whole = TrainRanks(ranks, 20, ranks).front();
    for (const std::int64_t bytes : {1, 300, 1500, 4000}) {
      const Trained cut = TrainRanks(
          ranks, 20, ranks, {.first_bucket = Bytes(bytes / 2 + 1), .bucket_cap = Bytes(bytes)})[1];
      EXPECT_EQ(cut.parameters, whole.parameters) << bytes;
      EXPECT_EQ(cut.norms, whole.norms) << bytes;
    }
  }
}

TEST(DataParallel, GivesEveryRankTheValuesOfRankZero) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    TinyModel model(1 + communicator->rank().value());
    at::Tensor statistics = ::ait::testing::Values({4}, communicator->rank().value());
    at::Tensor transposed = ::ait::testing::Values({2, 3}, communicator->rank().value()).t();
    DataParallelOptions options;
    options.buffers.Add("statistics", statistics);
    options.buffers.Add("transposed", transposed);
    auto engine = Engine(communicator, model.Parameters(), options);
    EXPECT_EQ(Flatten(model.Parameters()), Flatten(TinyModel(1).Parameters()));
    EXPECT_TRUE(statistics.equal(::ait::testing::Values({4}, 0)));
    EXPECT_TRUE(transposed.equal(::ait::testing::Values({2, 3}, 0).t()));
    statistics.fill_(communicator->rank().value() + 5);
    EXPECT_OK(engine->BroadcastBuffers());
    EXPECT_EQ(statistics[0].item<float>(), 5);
  });
}

TEST(DataParallel, VerifiesInitialValuesIfAsked) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    DataParallelOptions options{.initial_sync = InitialSync::kVerify};
    TinyModel same;
    EXPECT_OK(DataParallel::Create(communicator, same.Parameters(), options));
    TinyModel other;
    if (communicator->rank() == Rank(2)) other.down_bias.detach()[3] += 1e-6;
    EXPECT_THAT(DataParallel::Create(communicator, other.Parameters(), options),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("the initial value of down.bias on rank 2 is not the same")));
  });
}

TEST(DataParallel, CountsWhatAStepDid) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    TinyModel model;
    auto engine = Engine(communicator, model.Parameters(),
                         {.first_bucket = Bytes(1000), .bucket_cap = Bytes(2000)});
    EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 0.1}}));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
    EXPECT_OK(engine->Backward(model.Loss(Tokens(4, 1), Tokens(4, 2))));
    EXPECT_EQ(engine->counters().collectives, 0);
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(model.Loss(Tokens(4, 3), Tokens(4, 4))));
    ASSERT_OK(engine->FinishGradients({.count = 8}));
    EXPECT_OK(engine->Update({.gradient_scale = 1.0 / 16}));
    const StepCounters& counters = engine->counters();
    EXPECT_EQ(counters.step, 1);
    EXPECT_EQ(counters.micro_steps, 2);
    EXPECT_EQ(counters.unused_parameters, 1);
    EXPECT_EQ(counters.unreduced_buckets, 0);
    ASSERT_EQ(counters.buckets.size(), engine->layout().buckets().size());
    ASSERT_GE(counters.buckets.size(), 3u);
    EXPECT_EQ(counters.collectives, static_cast<int>(counters.buckets.size()) + 1);
    std::int64_t bytes = 0;
    for (const BucketCounters& bucket : counters.buckets) {
      bytes += bucket.bytes;
      EXPECT_GE(bucket.ready, Duration::zero());
      EXPECT_GE(bucket.communication, Duration::zero());
    }
    EXPECT_GT(counters.communicated_bytes, bytes);
    EXPECT_LT(counters.communicated_bytes, bytes + 1000);
    EXPECT_LE(counters.overlap, counters.communication);
    EXPECT_GT(counters.backward, Duration::zero());
    EXPECT_GT(counters.update, Duration::zero());
  });
}

TEST(DataParallel, CountsForwardOnceWhenBackwardRunsTwice) {
  TinyModel model;
  auto engine = Engine(Alone(), model.Parameters());
  const Time begin = SystemClock().now();
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
  EXPECT_OK(engine->Backward(model.Loss(Tokens(4, 1), Tokens(4, 2))));
  EXPECT_OK(engine->Backward(model.Loss(Tokens(4, 3), Tokens(4, 4))));
  const Duration elapsed = SystemClock().now() - begin;
  EXPECT_LE(engine->counters().forward + engine->counters().backward, elapsed);
}

TEST(DataParallel, RefusesCountsThatAddUpToTooMuch) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    at::Tensor weight = ::ait::testing::Leaf({5}, 1);
    NamedTensors parameters;
    parameters.Add("weight", weight);
    auto engine = Engine(communicator, parameters);
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(weight.sum()));
    const bool is_huge = communicator->rank() != Rank(1);
    EXPECT_THAT(
        engine->FinishGradients({.count = is_huge ? std::numeric_limits<std::int64_t>::max() : 1}),
        StatusIs(StatusCode::kInvalidArgument,
                 HasSubstr("the counts of all ranks add up to more than "
                           "9223372036854775807; those of ranks 0, 2 are too large")));
    EXPECT_OK(engine->status());
  });
}

TEST(DataParallel, SaysWhichParameterIsNotFinite) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    TinyModel model;
    auto engine = Engine(communicator, model.Parameters());
    EXPECT_OK(engine->SetOptimizer(AdamW{}));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(model.Loss(Tokens(4, 1), Tokens(4, 2))));
    ASSERT_OK_AND_ASSIGN(GradientSummary good, engine->FinishGradients({.count = 4}));
    EXPECT_TRUE(good.finite);
    EXPECT_EQ(good.not_finite, "");
    EXPECT_OK(engine->Discard());
    const std::vector<float> before = Flatten(model.Parameters());
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    const double factor = communicator->rank() == Rank(1) ? INFINITY : 1.0;
    EXPECT_OK(engine->Backward(model.up_bias.mul(factor).sum()));
    ASSERT_OK_AND_ASSIGN(GradientSummary bad, engine->FinishGradients({.count = 4}));
    EXPECT_FALSE(bad.finite);
    EXPECT_EQ(bad.not_finite, "up.bias");
    EXPECT_OK(engine->Discard());
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(model.Loss(Tokens(4, 1), Tokens(4, 2))));
    ASSERT_OK_AND_ASSIGN(GradientSummary again, engine->FinishGradients({.count = 4}));
    EXPECT_EQ(again.norm, good.norm);
    EXPECT_OK(engine->Discard());
    EXPECT_EQ(Flatten(model.Parameters()), before);
    EXPECT_EQ(engine->optimizers()[0]->step(), 0);
  });
}

TEST(DataParallel, ReducesCountsAndLossesOnce) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    at::Tensor weight = ::ait::testing::Leaf({5}, 1);
    NamedTensors parameters;
    parameters.Add("weight", weight);
    auto engine = Engine(communicator, parameters);
    const int rank = communicator->rank().value();
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(weight.sum().mul(rank + 1)));
    ASSERT_OK_AND_ASSIGN(GradientSummary sum,
                         engine->FinishGradients({.count = rank, .loss_sum = 0.5 * rank}));
    EXPECT_EQ(sum.count, 3);
    EXPECT_EQ(sum.loss_sum, 1.5);
    EXPECT_DOUBLE_EQ(sum.norm, std::sqrt(5.0) * 6 / 3);
    EXPECT_EQ(weight.grad()[0].item<float>(), 6);
  });
}

TEST(DataParallel, TellsAllRanksOfRequestsAndOfALossThatIsNotFinite) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    at::Tensor weight = ::ait::testing::Leaf({5}, 1);
    NamedTensors parameters;
    parameters.Add("weight", weight);
    auto engine = Engine(communicator, parameters);
    EXPECT_TRUE(engine->parameters().tensor(0).is_same(weight));
    EXPECT_TRUE(engine->buffers().empty());
    const int rank = communicator->rank().value();
    const double loss = rank == 0 ? 1 : std::numeric_limits<double>::infinity();
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(weight.sum()));
    ASSERT_OK_AND_ASSIGN(
        GradientSummary sum,
        engine->FinishGradients({.loss_sum = loss, .requests = rank == 2 ? 0b100u : 0b001u}));
    EXPECT_TRUE(sum.finite);
    EXPECT_EQ(sum.loss_not_finite, 1);
    EXPECT_EQ(sum.requests, 0b101u);
  });
}

TEST(DataParallel, RefusesWrongCountsOnEveryRank) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    at::Tensor weight = ::ait::testing::Leaf({5}, 1);
    NamedTensors parameters;
    parameters.Add("weight", weight);
    auto engine = Engine(communicator, parameters);
    const std::int64_t rank = communicator->rank().value();
    const auto finish = [&](const StepInput& input) {
      EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
      EXPECT_OK(engine->Backward(weight.sum()));
      const Status status = engine->FinishGradients(input).status();
      EXPECT_THAT(engine->Update({}), StatusIs(StatusCode::kFailedPrecondition));
      EXPECT_OK(engine->Discard());
      return status;
    };
    EXPECT_THAT(finish({.count = 0}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("counted 0 tokens")));
    EXPECT_THAT(finish({.count = 5 - 6 * rank}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("count of rank 1 is negative")));
    EXPECT_THAT(finish({.must_agree = static_cast<std::uint64_t>(rank)}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("must_agree of rank 1")));
    EXPECT_OK(engine->status());
    EXPECT_OK(finish({.count = 1}));
  });
}

TEST(DataParallel, RefusesCallsOutOfOrder) {
  TinyModel model;
  auto engine = Engine(Alone(), model.Parameters());
  const at::Tensor loss = model.Loss(Tokens(4, 1), Tokens(4, 2));
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kFailedPrecondition, HasSubstr(text));
  };
  EXPECT_THAT(engine->Backward(loss), refused("call BeginMicroStep first"));
  EXPECT_THAT(engine->FinishGradients({}), refused("no last micro-step is open"));
  EXPECT_THAT(engine->Update({}), refused("call FinishGradients first"));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
  EXPECT_THAT(engine->FinishGradients({}), refused("no last micro-step is open"));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast), refused("still open"));
  EXPECT_THAT(engine->Discard(), refused("call FinishGradients first"));
  EXPECT_OK(engine->Backward(loss));
  EXPECT_THAT(engine->Backward(loss), refused("called before in this last micro-step"));
  EXPECT_OK(engine->FinishGradients({}));
  EXPECT_THAT(engine->Update({}), refused("no optimizer"));
  EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast), refused("call Update or Discard"));
  EXPECT_OK(engine->SetOptimizer(AdamW{}));
  EXPECT_THAT(engine->Update({.gradient_scale = NAN}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(engine->Update({}));
}

TEST(DataParallel, NeedsACommunicator) {
  TinyModel model;
  EXPECT_THAT(DataParallel::Create(nullptr, model.Parameters()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("communicator is null")));
}

}  // namespace
}  // namespace ait
