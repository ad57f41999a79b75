// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/unit.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <c10/core/GradMode.h>
// clang-format on

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <variant>

#include "ait/base/throw_on_error.h"
#include "ait/optim/adam.h"
#include "ait/optim/norm.h"
#include "ait/parallel/whole_parameters.h"
#include "parallel/engine_support.h"
#include "parallel/out_of_reach.h"
#include "parallel/tiny_model.h"
#include "parallel/unit_model.h"
#include "support/status_matchers.h"
#include "tensor/catch.h"

namespace ait {
namespace {

using ::ait::internal::CatchAsStatus;
using ::ait::testing::Alone;
using ::ait::testing::Engine;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::Tokens;
using ::ait::testing::UnitModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Outcome {
  std::vector<float> parameters;  // of rank 0
  std::vector<double> norms;
};

std::vector<float> ValuesOf(const NamedTensors& tensors) {
  NamedTensors floats;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    floats.Add(tensors.name(i), tensors.tensor(i).detach().to(at::kFloat));
  }
  return testing::Flatten(floats);
}

struct Training {
  int steps = 6;
  int accumulate = 1;
  UnitModel::Options model;
  bool only_rank_0_has_side = false;
  bool out_of_reach = false;
  bool empty_last = false;  // a last micro-step without backward follows
  bool evaluate = false;    // between steps, on every rank as often as it likes
};

Outcome Train(int ranks, const DataParallelOptions& options, const Training& training) {
  Outcome run;
  RunRanks(ranks, [&](std::shared_ptr<Communicator> communicator) {
    if (training.out_of_reach) communicator = testing::OutOfReach(communicator);
    const int rank = communicator->rank().value();
    UnitModel model(1 + rank);  // rank 0 wins
    auto engine = Engine(communicator, model.Parameters(), options);
    ASSERT_NE(engine, nullptr);
    ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
    UnitModel::Options how = training.model;
    if (training.only_rank_0_has_side) how.skip_side = rank != 0;
    std::vector<double> norms;
    for (int step = 0; step < training.steps; ++step) {
      for (int m = 0; m < training.accumulate; ++m) {
        const bool last = m + 1 == training.accumulate && !training.empty_last;
        ASSERT_OK(engine->BeginMicroStep(last ? MicroStep::kLast : MicroStep::kAccumulate));
        const at::Tensor tokens = Tokens(6, (step * training.accumulate + m) * ranks + rank);
        ASSERT_OK(engine->Backward(model.Loss(
            *engine, tokens, tokens.mul(3).add(1).remainder(UnitModel::kVocabulary), how)));
      }
      if (training.empty_last) {
        ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
      }
      const auto summary = engine->FinishGradients({.count = 6});
      ASSERT_OK(summary);
      norms.push_back(summary->norm);
      ASSERT_OK(engine->Update({.gradient_scale = ClipFactor(summary->norm, 1.0) /
                                                  static_cast<double>(summary->count)}));
      for (int i = 0; training.evaluate && i < rank + 1; ++i) {
        const c10::NoGradGuard no_grad;
        (void)model.Loss(*engine, Tokens(6, 1), Tokens(6, 2));
      }
    }
    auto whole = engine->GatherFull();
    ASSERT_OK(whole);
    if (rank == 0) run = {.parameters = ValuesOf(model.Parameters()), .norms = norms};
    ASSERT_OK(communicator->Barrier().Wait());
  });
  return run;
}

DataParallelOptions Sharded(int prefetch = 1) {
  return {.zero_stage = ZeroStage::kParameters,
          .reduce = ReduceWhen::kEachMicroStep,
          .units = UnitModel::Units(),
          .prefetch = prefetch};
}

TEST(UnitTest, Stage3GivesTheBitsOfStage0) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int accumulate : {1, 3}) {
      const Training training{.accumulate = accumulate};
      const Outcome whole = Train(ranks, {.reduce = ReduceWhen::kEachMicroStep}, training);
      for (const int prefetch : {0, 1, 3}) {
        const Outcome sharded = Train(ranks, Sharded(prefetch), training);
        EXPECT_EQ(sharded.parameters, whole.parameters) << ranks << " " << prefetch;
        EXPECT_EQ(sharded.norms, whole.norms);
      }
      DataParallelOptions small = Sharded();
      small.first_bucket = small.bucket_cap = Bytes(600);
      small.whole_up_to = 40;
      EXPECT_EQ(Train(ranks, small, training).parameters, whole.parameters);
      DataParallelOptions uneven = Sharded();
      uneven.slices = SliceRule::kWholeParameters;
      EXPECT_EQ(Train(ranks, uneven, training).parameters, whole.parameters);
    }
  }
}

TEST(UnitTest, OnceAStepGivesTheBitsOfStage0) {
  const Training training{.accumulate = 2};
  DataParallelOptions once = Sharded();
  once.reduce = ReduceWhen::kOnce;
  EXPECT_EQ(Train(2, once, training).parameters, Train(2, {}, training).parameters);
}

TEST(UnitTest, BlocksAreComputedAgainInBackward) {
  const Training again{.accumulate = 2, .model = {.share = false, .checkpoint = true}};
  const Training plain{.accumulate = 2, .model = {.share = false}};
  const DataParallelOptions whole{.reduce = ReduceWhen::kEachMicroStep};
  const Outcome expected = Train(2, whole, again);
  EXPECT_EQ(expected.parameters, Train(2, whole, plain).parameters);
  for (const int prefetch : {0, 1, 2}) {
    EXPECT_EQ(Train(2, Sharded(prefetch), again).parameters, expected.parameters);
  }
}

// Every block uses a parameter of the first, and runs a backward of its own inside backward.
TEST(UnitTest, RecomputedBlocksMayShareAParameterWhereMicroStepsAreNotReduced) {
  const Training training{.accumulate = 2, .model = {.checkpoint = true}, .empty_last = true};
  DataParallelOptions once = Sharded();
  once.reduce = ReduceWhen::kOnce;
  EXPECT_EQ(Train(2, once, training).parameters, Train(2, {}, training).parameters);
  RunRanks(1, [](const std::shared_ptr<Communicator>& communicator) {
    UnitModel model(1);
    auto engine = Engine(communicator, model.Parameters(), Sharded());
    ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
    const at::Tensor tokens = Tokens(6, 1);
    EXPECT_THAT(engine->Backward(model.Loss(*engine, tokens, tokens, {.checkpoint = true})),
                StatusIs(StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("blocks.0.up got a second gradient"),
                               HasSubstr("ReduceWhen::kOnce"))));
  });
}

TEST(UnitTest, AUnitMayBeUsedBySomeRanksOnly) {
  const Training training{.only_rank_0_has_side = true, .evaluate = true};
  const Outcome whole = Train(3, {.reduce = ReduceWhen::kEachMicroStep}, training);
  EXPECT_EQ(Train(3, Sharded(1), training).parameters, whole.parameters);
  EXPECT_EQ(Train(3, Sharded(2), training).parameters, whole.parameters);
}

TEST(UnitTest, WithoutReachTheBitsAreTheSame) {
  const Training training{.accumulate = 2, .out_of_reach = true};
  const Outcome whole = Train(3, {.reduce = ReduceWhen::kEachMicroStep}, training);
  for (const int prefetch : {0, 1, 2}) {
    EXPECT_EQ(Train(3, Sharded(prefetch), training).parameters, whole.parameters);
  }
}

TEST(UnitTest, PureBf16WithMastersGivesTheSameBits) {
  DataParallelOptions whole{.precision = {.parameters = DType::kBFloat16},
                            .reduce = ReduceWhen::kEachMicroStep};
  DataParallelOptions sharded = Sharded();
  sharded.precision = whole.precision;
  EXPECT_EQ(Train(2, sharded, {}).parameters, Train(2, whole, {}).parameters);
}

// ---- results ----

struct Attended {
  at::Tensor values;
  int heads = 2;
  std::map<std::string, at::Tensor> caches;
};
template <typename Visit>
void VisitTensors(const Attended& a, Visit&& visit) {
  visit(a.values);
  visit(a.caches);
}

TEST(UnitTest, ResultsOfAnyStructureAreReturnedAsTheyAre) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), Sharded());
  ASSERT_NE(engine, nullptr);
  const at::Tensor x = testing::Values({2, UnitModel::kWidth}, 1);
  const auto linear = [&] { return x.mm(model.side); };
  const auto backward_of = [&](const at::Tensor& y) {
    ASSERT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
    EXPECT_OK(engine->Backward(y.sum()));
  };
  backward_of(engine->Unit("side", linear));
  backward_of(*engine->Unit("side", [&] { return std::optional(linear()); }));
  backward_of(std::get<1>(engine->Unit("side", [&] { return std::tuple(1, linear(), "text"); })));
  backward_of(engine->Unit("side", [&] { return std::array{linear(), x}; })[0]);
  backward_of(engine->Unit("side", [&] {
    return std::map<std::string, std::vector<at::Tensor>>{{"a", {x, linear()}}};
  })["a"][1]);
  backward_of(*engine->Unit("side", [&] { return std::make_unique<at::Tensor>(linear()); }));
  backward_of(std::get<at::Tensor>(
      engine->Unit("side", [&] { return std::variant<int, at::Tensor>(linear()); })));
  const Attended attended =
      engine->Unit("side", [&] { return Attended{.values = x, .caches = {{"k", linear()}}}; });
  backward_of(attended.caches.at("k"));
  bool ran = false;
  engine->Unit("side", [&] { ran = true; });
  EXPECT_TRUE(ran);
  at::Tensor kept = x;
  EXPECT_EQ(&engine->Unit("side", [&]() -> at::Tensor& { return kept; }), &kept);
  EXPECT_EQ(engine->Unit(
                "side", [](int a, std::unique_ptr<int> b) { return a + *b; }, 1,
                std::make_unique<int>(2)),
            3);
}

// ---- errors ----

TEST(UnitTest, WhatCannotWorkIsRefusedAtCreate) {
  UnitModel model(1);
  const auto create = [&](DataParallelOptions options) {
    return DataParallel::Create(Alone(), model.Parameters(), std::move(options)).status();
  };
  EXPECT_THAT(create({.zero_stage = ZeroStage::kParameters}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("DataParallelOptions::units"), HasSubstr("kGradients"))));
  DataParallelOptions options = Sharded(9);
  EXPECT_THAT(create(options), StatusIs(StatusCode::kInvalidArgument, HasSubstr("prefetch is 9")));
  options = Sharded();
  options.units.push_back({.name = "tail", .patterns = {"tail.*"}});
  EXPECT_THAT(create(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("unit tail matches no parameter")));
  options = Sharded();
  options.whole_up_to = -1;
  EXPECT_THAT(create(options), StatusIs(StatusCode::kInvalidArgument, HasSubstr("whole_up_to")));
}

TEST(UnitTest, ErrorsOfACallAreThrownAndBecomeTheStatusThatTheyWere) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), Sharded());
  ASSERT_NE(engine, nullptr);
  const auto call = [&](std::string_view name) {
    return CatchAsStatus([&] { return engine->Unit(name, [&] { return model.side.sum(); }); });
  };
  EXPECT_THAT(call("sides").status(),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("no unit sides"), HasSubstr("blocks.0, blocks.1"))));
  EXPECT_THROW(engine->Unit("sides", [] {}), StatusException);
  EXPECT_OK(call("side").status());
  EXPECT_THAT(call("embedding").status(),
              StatusIs(StatusCode::kUnknown, HasSubstr("unit side are not gathered")));
  EXPECT_THAT(CatchAsStatus(
                  [&] { engine->Unit("side", [] { throw std::runtime_error("of the model"); }); }),
              StatusIs(StatusCode::kUnknown, HasSubstr("of the model")));
  EXPECT_THAT(CatchAsStatus([&] { return model.side.sum(); }).status(),
              StatusIs(StatusCode::kUnknown, HasSubstr("not gathered")))
      << "the exception has ended the call";
}

TEST(UnitTest, ParametersThatAreAboutToChangeAreNotGathered) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), Sharded());
  ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
  const at::Tensor tokens = Tokens(6, 1);
  ASSERT_OK(engine->Backward(model.Loss(*engine, tokens, tokens)));
  EXPECT_THAT(engine->GatherFull().status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("a step is not over")));
  ASSERT_OK(engine->FinishGradients({}).status());
  EXPECT_THAT(CatchAsStatus([&] { return model.Loss(*engine, tokens, tokens); }).status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("before FinishGradients")));
  ASSERT_OK(engine->Update({}));
  EXPECT_OK(CatchAsStatus([&] { return model.Loss(*engine, tokens, tokens); }).status());
}

TEST(UnitTest, AParameterThatChangedIsNamed) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), Sharded());
  ASSERT_NE(engine, nullptr);
  model.blocks[1].down.set_data(testing::Values({3, 3}, 1));
  EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("blocks.1.down"), HasSubstr("unit blocks.1"))));
}

TEST(UnitTest, AnEngineThatHasEndedThrows) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), Sharded());
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
  const at::Tensor tokens = Tokens(6, 1);
  const at::Tensor loss = model.Loss(*engine, tokens, tokens);
  loss.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("x"); });
  EXPECT_FALSE(engine->Backward(loss).ok());
  EXPECT_THAT(CatchAsStatus([&] { engine->Unit("side", [] {}); }),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("has ended")));
}

TEST(UnitTest, ACallThatOutlivesItsStepEndsNoUseOfTheNext) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), Sharded());
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
  std::optional<WholeParameters> whole;
  engine->Unit("side", [&] {
    ASSERT_OK(engine->Discard());
    EXPECT_FALSE(CatchAsStatus([&] { return model.side.sum(); }).ok()) << "it was released";
    auto gathered = engine->GatherFull();
    ASSERT_OK(gathered);
    whole = *std::move(gathered);
  });
  EXPECT_OK(CatchAsStatus([&] { return model.side.sum(); }).status());
  whole.reset();
  EXPECT_FALSE(CatchAsStatus([&] { return model.side.sum(); }).ok());
  engine->Unit("side", [&] { engine.reset(); });
}

TEST(UnitTest, ARankThatFailsInBackwardFreesThoseThatGather) {
  RunRanks(3, [](const std::shared_ptr<Communicator>& inside) {
    const auto communicator = testing::OutOfReach(inside);
    UnitModel model(1);
    DataParallelOptions options = Sharded(0);
    options.timeout = std::chrono::seconds(60);
    auto engine = Engine(communicator, model.Parameters(), options);
    ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
    const at::Tensor tokens = Tokens(6, 1);
    const at::Tensor loss = model.Loss(*engine, tokens, tokens);
    if (communicator->rank() == Rank(1)) {
      loss.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on purpose"); });
    }
    const Status failed = engine->Backward(loss);
    EXPECT_THAT(failed.ToString(), HasSubstr("on purpose"));
    EXPECT_NE(failed.code(), StatusCode::kDeadlineExceeded);
  });
}

TEST(UnitTest, WhatRunsAfterADiscardedStepIsNotExpectedOfTheNext) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), Sharded());
  ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  const at::Tensor tokens = Tokens(6, 1);
  const auto step = [&](bool skip_side) {
    ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
    ASSERT_OK(engine->Backward(model.Loss(*engine, tokens, tokens, {.skip_side = skip_side})));
    ASSERT_OK(engine->FinishGradients({}).status());
    ASSERT_OK(engine->Update({}));
  };
  step(false);
  EXPECT_EQ(engine->counters().gather_surprises, 0) << "nothing is expected of the first";
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
  ASSERT_OK(engine->Backward(model.Loss(*engine, tokens, tokens)));
  ASSERT_OK(engine->Discard());
  for (int i = 0; i < 2; ++i) {
    const c10::NoGradGuard no_grad;
    engine->Unit("side", [] {});
    engine->Unit("blocks.1", [] {});
  }
  step(false);
  EXPECT_EQ(engine->counters().gather_surprises, 0);
  step(true);
  EXPECT_GT(engine->counters().gather_surprises, 0) << "a unit was left out";
}

// ---- what it costs ----

TEST(UnitTest, MemoryAndCountersTellOfUnits) {
  RunRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    UnitModel model(1);
    auto engine = Engine(communicator, model.Parameters(), Sharded());
    ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
    for (int step = 0; step < 3; ++step) {
      ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
      const at::Tensor tokens = Tokens(6, 1);
      ASSERT_OK(engine->Backward(model.Loss(*engine, tokens, tokens, {.share = false})));
      ASSERT_OK(engine->FinishGradients({}).status());
      ASSERT_OK(engine->Update({}));
    }
    EXPECT_GE(engine->counters().gathers, 5);
    EXPECT_GT(engine->counters().gathered_bytes, 4 * 2000);
    const MemoryReport memory = engine->Memory();
    std::int64_t total = 0;
    for (std::size_t i = 0; i + 1 < model.Parameters().size(); ++i) {
      total += model.Parameters().tensor(i).numel() * 4;
    }
    const std::int64_t whole = 12 * 4;  // of position
    EXPECT_EQ(memory.formula.parameters, (total - whole) / 2 + whole);
    EXPECT_GE(memory.measured.parameters, memory.formula.parameters);
    EXPECT_LE(memory.measured.parameters, memory.formula.parameters + memory.padding);
    std::int64_t padded = 0;
    for (const FlatBucket& bucket : engine->layout().buckets()) padded += bucket.count * 4;
    EXPECT_GT(memory.peak_gathered, 0);
    EXPECT_LT(memory.peak_gathered, padded * 3 / 4) << "two units of five";
    ASSERT_OK(communicator->Barrier().Wait());
  });
}

}  // namespace
}  // namespace ait
