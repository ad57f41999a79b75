// SPDX-License-Identifier: Apache-2.0
// DataParallel with compressed gradients: training, its state, its counters, and what is refused.
#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "ait/comm/communicator.h"
#include "ait/optim/adam.h"
#include "ait/parallel/compression.h"
#include "parallel/engine_support.h"
#include "parallel/tiny_model.h"

namespace ait {
namespace {

using ::ait::testing::Engine;
using ::ait::testing::Flatten;
using ::ait::testing::Leaf;
using ::ait::testing::List;
using ::ait::testing::Reduce;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TinyModel;
using ::ait::testing::Tokens;
using ::ait::testing::Values;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Make = std::function<std::shared_ptr<GradientCompression>()>;

// What a rank has after training.
struct Result {
  std::vector<float> parameters;
  double first_loss = 0;  // mean per token of all ranks
  double last_loss = 0;
  StepCounters counters;
};

Result Train(const std::shared_ptr<Communicator>& communicator,
             std::shared_ptr<GradientCompression> compression, int steps) {
  const TinyModel model(1);
  Result result;
  auto engine = Engine(communicator, model.Parameters(),
                       {.first_bucket = Bytes(500),
                        .bucket_cap = Bytes(2000),
                        .compression = std::move(compression)});
  if (engine == nullptr) return result;
  EXPECT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  for (int step = 0; step < steps; ++step) {
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    // A rule that can be learned: the next token is the one after it.
    const at::Tensor tokens = Tokens(24, 100 * step + communicator->rank().value());
    const at::Tensor loss = model.Loss(tokens, tokens.add(1).remainder(TinyModel::kVocabulary));
    EXPECT_OK(engine->Backward(loss));
    auto sum = engine->FinishGradients({.count = 24, .loss_sum = loss.item<double>()});
    EXPECT_OK(sum);
    if (!sum.ok()) return result;
    EXPECT_OK(engine->Update({.gradient_scale = 1.0 / static_cast<double>(sum->count)}));
    result.last_loss = sum->loss_sum / static_cast<double>(sum->count);
    if (step == 0) result.first_loss = result.last_loss;
  }
  result.parameters = Flatten(model.Parameters());
  result.counters = engine->counters();
  return result;
}

// The results of all ranks, which hold the same parameters.
std::vector<Result> TrainAll(int ranks, const Make& make, int steps) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  RunRanks(ranks, [&](std::shared_ptr<Communicator> communicator) {
    results[static_cast<std::size_t>(communicator->rank().value())] =
        Train(communicator, make(), steps);
  });
  for (const Result& result : results) EXPECT_EQ(result.parameters, results[0].parameters);
  return results;
}

const CompressionScope kAll = {.min_elements = 0};

std::map<std::string, Make> Methods() {
  return {
      {"bf16", [] { return Bf16Compression(); }},
      {"int8", [] { return Int8Compression({.block = 64, .scope = kAll}); }},
      {"topk", [] { return TopKCompression({.ratio = 0.1, .scope = kAll}); }},
      {"powersgd",
       [] { return PowerSgdCompression({.rank = 2, .start_step = 5, .min_ratio = 1}); }},
  };
}

class Training : public ::testing::TestWithParam<std::pair<const std::string, Make>> {};

TEST_P(Training, ReachesTheLossOfExactGradients) {
  for (const int ranks : {2, 3}) {
    const Result exact = TrainAll(ranks, [] { return nullptr; }, 120)[0];
    const Result compressed = TrainAll(ranks, GetParam().second, 120)[0];
    EXPECT_LT(exact.last_loss, 0.5 * exact.first_loss);
    EXPECT_NEAR(compressed.last_loss, exact.last_loss, 0.05 * exact.first_loss);
    EXPECT_NE(compressed.parameters, exact.parameters);
  }
}

TEST_P(Training, CountsWhatItSends) {
  const std::vector<Result> results = TrainAll(2, GetParam().second, 8);
  const StepCounters exact = TrainAll(2, [] { return nullptr; }, 8)[0].counters;
  EXPECT_EQ(exact.compression.sent_bytes, 0);
  EXPECT_EQ(exact.compression.ratio(), 0);
  for (const Result& result : results) {
    const StepCounters& counters = result.counters;
    EXPECT_GT(counters.compression.ratio(), 1);
    EXPECT_GT(counters.compression.relative_error(), 0);
    EXPECT_LT(counters.compression.relative_error(), 1);
    EXPECT_LT(counters.communicated_bytes, exact.communicated_bytes);
    EXPECT_EQ(counters.collectives, counters.compression.collectives + 1);
    EXPECT_EQ(counters.unreduced_buckets, 0);
    ASSERT_EQ(counters.buckets.size(), exact.buckets.size());
    EXPECT_GT(counters.communication, Duration::zero());
  }
}

TEST_P(Training, OfOneRankIsExact) {
  const Result exact = TrainAll(1, [] { return nullptr; }, 5)[0];
  EXPECT_EQ(TrainAll(1, GetParam().second, 5)[0].parameters, exact.parameters);
}

TEST_P(Training, SkipsAStepThatIsNotFiniteAndGoesOn) {
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const at::Tensor weight = Leaf({32, 48}, 1);
    auto engine =
        Engine(communicator, List({{"weight", weight}}), {.compression = GetParam().second()});
    for (int step = 0; step < 9; ++step) {
      at::Tensor factor = Values({32, 48}, 10 * step + communicator->rank().value());
      if (step == 7 && communicator->rank() == Rank(1)) factor.mutable_data_ptr<float>()[5] = 1e38f;
      ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
      ASSERT_OK(engine->Backward(weight.mul(factor).mul(step == 7 ? 1e10 : 1.0).sum()));
      auto sum = engine->FinishGradients({});
      ASSERT_OK(sum);
      EXPECT_EQ(sum->finite, step != 7);
      EXPECT_EQ(sum->not_finite, step == 7 ? "weight" : "");
      ASSERT_OK(engine->Discard());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Compression, Training, ::testing::ValuesIn(Methods()),
                         [](const auto& test) { return test.param.first; });

// One step of a matrix, for tests of state and refusals.
Status StepOnce(DataParallel& engine, const at::Tensor& weight, int seed) {
  AIT_RETURN_IF_ERROR(Reduce(engine, weight.mul(Values(weight.sizes(), seed)).sum()));
  return engine.Update({});
}

TEST(CompressionState, GoesThroughTheEngine) {
  std::vector<std::string> saved(2);
  std::vector<std::vector<float>> expected(2);
  const auto run = [&](std::shared_ptr<Communicator> communicator, bool resumes) {
    const auto rank = static_cast<std::size_t>(communicator->rank().value());
    const at::Tensor weight = Leaf({32, 48}, 1);
    auto engine = Engine(communicator, List({{"weight", weight}}),
                         {.compression = TopKCompression({.ratio = 0.05})});
    ASSERT_OK(engine->SetOptimizer(AdamW{}));
    const auto step = [&](int seed) {
      ASSERT_OK(StepOnce(*engine, weight, 2 * seed + static_cast<int>(rank)));
    };
    if (!resumes) {
      for (const int seed : {1, 2, 3}) step(seed);
      ASSERT_OK_AND_ASSIGN(const CompressionState state, engine->SaveCompression());
      saved[rank] = state.ToBytes();
    } else {
      ASSERT_OK_AND_ASSIGN(const CompressionState state, CompressionState::FromBytes(saved[rank]));
      ASSERT_OK_AND_ASSIGN(const std::string lost, engine->LoadCompression({&state, 1}));
      EXPECT_THAT(lost, IsEmpty());
    }
    step(4);
    const auto* gradient = weight.grad().const_data_ptr<float>();
    const std::vector<float> values(gradient, gradient + weight.numel());
    if (resumes) {
      EXPECT_EQ(values, expected[rank]);
    } else {
      expected[rank] = values;
    }
  };
  RunRanks(2, [&](auto communicator) { run(communicator, false); });
  RunRanks(2, [&](auto communicator) { run(communicator, true); });
}

TEST(CompressionState, ThatDoesNotFitOneRankIsRefusedOnAll) {
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const at::Tensor weight = Leaf({32, 48}, 1);
    auto engine =
        Engine(communicator, List({{"weight", weight}}), {.compression = Int8Compression()});
    ASSERT_OK(engine->SetOptimizer(AdamW{}));
    CompressionState state = {.method = "int8", .world_size = 2, .step = 5};
    if (communicator->rank() == Rank(1)) state.method = "topk";
    EXPECT_THAT(engine->LoadCompression({&state, 1}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"topk\"")));
    state.method = "int8";
    state.step = communicator->rank().value();
    EXPECT_THAT(
        engine->LoadCompression({&state, 1}),
        StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("step 0"), HasSubstr("step 1"))));
    EXPECT_OK(StepOnce(*engine, weight, 1));  // the engine goes on, from nothing
    ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_THAT(engine->SaveCompression(), StatusIs(StatusCode::kFailedPrecondition));
    EXPECT_THAT(engine->LoadCompression({&state, 1}), StatusIs(StatusCode::kFailedPrecondition));
    ASSERT_OK(engine->FinishGradients({}));
    EXPECT_THAT(engine->SaveCompression(), StatusIs(StatusCode::kFailedPrecondition));
    ASSERT_OK(engine->Discard());
    EXPECT_OK(engine->SaveCompression());
  });
}

TEST(CompressionState, OfAnEngineWithoutCompressionIsEmpty) {
  const at::Tensor weight = Leaf({3}, 1);
  auto engine = Engine(ait::testing::Alone(), List({{"weight", weight}}));
  ASSERT_OK_AND_ASSIGN(const CompressionState state, engine->SaveCompression());
  EXPECT_EQ(state, CompressionState());
  const CompressionState other = {.method = "int8"};
  ASSERT_OK_AND_ASSIGN(const std::string lost, engine->LoadCompression({&other, 1}));
  EXPECT_THAT(lost, HasSubstr("does not compress"));
}

TEST(CompressionOptions, MustBeTheSameOnAllRanks) {
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const double ratio = communicator->rank() == Rank(0) ? 0.25 : 0.5;
    EXPECT_THAT(DataParallel::Create(communicator, List({{"weight", Leaf({32, 48}, 1)}}),
                                     {.compression = TopKCompression({.ratio = ratio})}),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("ratio 0.25"), HasSubstr("ratio 0.5"))));
  });
}

TEST(CompressionOptions, AreRefusedOnAllRanksIfWrongOnOne) {
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const std::int64_t block = communicator->rank() == Rank(0) ? 256 : 7;
    EXPECT_THAT(DataParallel::Create(communicator, List({{"weight", Leaf({32, 48}, 1)}}),
                                     {.compression = Int8Compression({.block = block})}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("a block of 7")));
  });
}

TEST(Compression, ServesOneEngineAtATime) {
  const auto shared = Bf16Compression();
  const at::Tensor weight = Leaf({3}, 1);
  const at::Tensor other = Leaf({3}, 2);
  auto engine = Engine(ait::testing::Alone(), List({{"weight", weight}}), {.compression = shared});
  EXPECT_THAT(DataParallel::Create(ait::testing::Alone(), List({{"other", other}}),
                                   {.compression = shared}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("one object for each engine")));
  engine.reset();
  EXPECT_NE(Engine(ait::testing::Alone(), List({{"other", other}}), {.compression = shared}),
            nullptr);
}

// A user's own: sums in the order of the ranks from the last to the first.
class Backwards final : public GradientCompression {
 public:
  explicit Backwards(int fails_in_bucket = -1) : fails_in_bucket_(fails_in_bucket) {}
  std::string Describe() const override { return "backwards"; }
  Status Bind(const FlatLayout&, Rank, WorldSize) override { return OkStatus(); }
  Status Reduce(const GradientBucket& bucket, Communicator& communicator,
                const OperationOptions& options, CompressionCounters& counters) override {
    if (bucket.index == fails_in_bucket_) throw std::runtime_error("no more");
    const std::int64_t count = bucket.values.count;
    std::vector<float> all(static_cast<std::size_t>(count * communicator.size().value()));
    AIT_RETURN_IF_ERROR(communicator.AllGather(bucket.values, View(all), options).Wait());
    auto* const values = static_cast<float*>(bucket.values.data);
    std::fill(values, values + count, 0.0f);
    for (std::int64_t i = static_cast<std::int64_t>(all.size()); i-- > 0;) {
      values[i % count] += all[static_cast<std::size_t>(i)];
    }
    ++counters.collectives;
    return OkStatus();
  }

 private:
  int fails_in_bucket_;
};

TEST(Compression, MayBeTheUsersOwn) {
  const Result exact = TrainAll(3, [] { return nullptr; }, 1)[0];
  const Result own = TrainAll(3, [] { return std::make_shared<Backwards>(); }, 1)[0];
  ASSERT_EQ(own.parameters.size(), exact.parameters.size());
  for (std::size_t i = 0; i < own.parameters.size(); ++i) {
    EXPECT_NEAR(own.parameters[i], exact.parameters[i], 1e-4);
  }
  EXPECT_EQ(own.counters.collectives, exact.counters.collectives);
}

TEST(Compression, ThatFailsOnOneRankEndsAllWithAReason) {
  RunRanks(3, [&](std::shared_ptr<Communicator> communicator) {
    const TinyModel model(1);
    const bool fails = communicator->rank() == Rank(1);
    auto engine = Engine(communicator, model.Parameters(),
                         {.first_bucket = Bytes(500),
                          .bucket_cap = Bytes(2000),
                          .compression = std::make_shared<Backwards>(fails ? 1 : -1)});
    const at::Tensor tokens = Tokens(8, 1);
    const Status status = Reduce(*engine, model.Loss(tokens, tokens));
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), AllOf(HasSubstr("bucket 1"), HasSubstr("no more")));
    EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no more")));
  });
}

TEST(Compression, LeavesOtherTypesExact) {
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const at::Tensor wide = Values({40, 40}, 1).to(at::kDouble).set_requires_grad(true);
    const at::Tensor weight = Leaf({40, 40}, 2);
    auto engine = Engine(communicator, List({{"wide", wide}, {"weight", weight}}),
                         {.compression = Bf16Compression()});
    const double factor = communicator->rank() == Rank(0) ? 1 : 0x1p-40;
    ASSERT_OK(Reduce(*engine, wide.sum().mul(factor).add(weight.sum().mul(1 + 0x1p-7))));
    EXPECT_EQ(wide.grad()[0][0].item<double>(), 1 + 0x1p-40);
    EXPECT_EQ(weight.grad()[0][0].item<float>(), 2 + 0x1p-6);
  });
}

TEST(Compression, EndsWithTheEngineInTheMiddleOfAStep) {
  for (const auto& [name, make] : Methods()) {
    RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
      const TinyModel model(1);
      auto engine = Engine(communicator, model.Parameters(),
                           {.first_bucket = Bytes(500), .compression = make()});
      ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
      if (communicator->rank() == Rank(1)) return;  // its engine ends; the other finds out
      const at::Tensor tokens = Tokens(8, 1);
      ASSERT_OK(engine->Backward(model.Loss(tokens, tokens)));
      communicator->Abort(AbortedError("enough"));
      EXPECT_FALSE(engine->FinishGradients({}).ok()) << name;
    });
  }
}

}  // namespace
}  // namespace ait
