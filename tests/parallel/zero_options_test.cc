// SPDX-License-Identifier: Apache-2.0
// Options of sharding and precision: what they keep, what they refuse, and what users see.
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>
#include <utility>

#include "ait/optim/sgd.h"
#include "ait/parallel/compression.h"
#include "parallel/engine_support.h"
#include "parallel/zero_training.h"

namespace ait {
namespace {

using ::ait::testing::Alone;
using ::ait::testing::Engine;
using ::ait::testing::First;
using ::ait::testing::Leaf;
using ::ait::testing::List;
using ::ait::testing::Reduce;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TinyModel;
using ::ait::testing::Tokens;
using ::ait::testing::Values;
using ::ait::testing::ZeroModel;
using ::testing::HasSubstr;

TEST(ZeroMemory, EqualsTheFormulas) {
  const AdamW adamw;
  constexpr std::int64_t kCount = 64 * 840;  // divides by all ranks: no padding
  for (const int ranks : {1, 2, 4, 8}) {
    for (const bool is_bf16 : {false, true}) {
      for (const ZeroStage stage :
           {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients}) {
        RunRanks(ranks, [&](std::shared_ptr<Communicator> communicator) {
          const at::Tensor a = Leaf({kCount}, 1);
          const at::Tensor b = Leaf({kCount / 2}, 2);
          DataParallelOptions options{.zero_stage = stage};
          if (is_bf16) options.precision = Precision::Bf16();
          auto engine = Engine(communicator, List({{"a", a}, {"b", b}}), options);
          EXPECT_OK(engine->SetOptimizer(adamw));
          const std::int64_t p = kCount + kCount / 2;
          const MemoryReport report = engine->Memory();
          const MemoryBytes& f = report.formula;
          EXPECT_EQ(f.parameters, p * (is_bf16 ? 2 : 4));
          EXPECT_EQ(f.gradients, 4 * p / (stage == ZeroStage::kGradients ? ranks : 1));
          const std::int64_t owners = stage == ZeroStage::kNone ? 1 : ranks;
          EXPECT_EQ(f.states, 8 * p / owners);
          EXPECT_EQ(f.masters, is_bf16 ? 4 * p / owners : 0);
          EXPECT_NEAR(report.measured.parameters, f.parameters, 0.01 * f.parameters);
          EXPECT_NEAR(report.measured.gradients, f.gradients, 0.01 * f.gradients);
          EXPECT_NEAR(report.measured.states, f.states, 0.01 * f.states);
          EXPECT_NEAR(report.measured.masters, f.masters, 0.01 * f.masters);
          if (stage == ZeroStage::kGradients) {
            EXPECT_GE(report.measured.buckets, 4 * p);  // one bucket has all
            EXPECT_EQ(report.peak_buckets, report.measured.buckets);
          } else {
            EXPECT_EQ(report.measured.buckets, 0);
          }
          EXPECT_THAT(report.Describe(), HasSubstr("gradients"));
        });
      }
    }
  }
}

TEST(ZeroMemory, CountsPaddingOnEveryRank) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    ZeroModel model;
    auto engine = Engine(communicator, model.Parameters(), {.zero_stage = ZeroStage::kGradients});
    EXPECT_OK(engine->SetOptimizer(AdamW{}));
    const MemoryReport report = engine->Memory();
    const std::int64_t all = engine->layout().groups()[0].count;
    std::int64_t real = 0;
    for (const FlatSlot& slot : engine->layout().groups()[0].slots) real += slot.count;
    EXPECT_EQ(report.measured.parameters, 4 * all);
    EXPECT_GE(report.padding, 4 * (all - real));
    EXPECT_LE(report.padding, 4 * (all - real) * 4 + 4096);
  });
}

TEST(ZeroRing, GrowsWhereBucketsStayOpenAndKeepsThat) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    std::vector<at::Tensor> p;
    NamedTensors list;
    for (int i = 0; i < 8; ++i) {
      p.push_back(Leaf({100}, i));
      p.push_back(Leaf({100}, 50 + i));
      list.Add(StrCat("used", i), p[p.size() - 2]);
      list.Add(StrCat("unused", i), p.back());
    }
    auto engine = Engine(communicator, list,
                         {.zero_stage = ZeroStage::kGradients,
                          .first_bucket = Bytes(1000),
                          .bucket_cap = Bytes(1000)});
    EXPECT_EQ(engine->layout().buckets().size(), 8u);
    const std::int64_t planned = engine->Memory().measured.buckets;
    std::int64_t peak = 0;
    for (int step = 0; step < 3; ++step) {
      at::Tensor loss = Leaf({}, 9);
      for (std::size_t i = 0; i < p.size(); i += 2) loss = loss.add(p[i].sum());
      EXPECT_OK(Reduce(*engine, loss));
      EXPECT_EQ(engine->counters().unused_parameters, 8);
      EXPECT_OK(engine->Discard());
      const std::int64_t now = engine->Memory().peak_buckets;
      EXPECT_GT(now, planned);
      if (step > 0) {
        EXPECT_EQ(now, peak);
      }
      peak = now;
    }
    EXPECT_FALSE(p[0].grad().defined());
  });
}

TEST(ZeroGradients, AreWhereTheHeaderSays) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank().value();
    for (const ReduceWhen reduce : {ReduceWhen::kOnce, ReduceWhen::kEachMicroStep}) {
      for (const ZeroStage stage :
           {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients}) {
        const at::Tensor a = Leaf({128}, 1);  // rank 0 owns the first half
        auto engine =
            Engine(communicator, List({{"a", a}}), {.zero_stage = stage, .reduce = reduce});
        EXPECT_OK(Reduce(*engine, a.sum().mul(1 + rank)));
        if (stage == ZeroStage::kGradients && reduce == ReduceWhen::kEachMicroStep) {
          EXPECT_FALSE(a.grad().defined());
          a.mutable_grad() = at::ones({128});
          EXPECT_OK(engine->SetOptimizer(Sgd{}));
          EXPECT_THAT(engine->Update({}),
                      StatusIs(StatusCode::kFailedPrecondition,
                               HasSubstr("parameter a was given a gradient by hand")));
          return;
        }
        EXPECT_EQ(a.grad()[64 * rank].item<float>(), 3);
        if (stage == ZeroStage::kNone) {
          EXPECT_EQ(a.grad()[64 - 64 * rank].item<float>(), 3);
        }
      }
    }
  });
}

TEST(ZeroGradients, ChangedByTheUserCountWhereTheyAreOwned) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({128}, 1);
    auto engine = Engine(communicator, List({{"a", a}}), {.zero_stage = ZeroStage::kOptimizer});
    EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 1}}));
    const at::Tensor before = a.detach().clone();
    EXPECT_OK(Reduce(*engine, a.sum()));
    a.mutable_grad() = a.grad().mul(2);
    EXPECT_OK(engine->Update({}));
    EXPECT_TRUE(a.equal(before.sub(4)));
  });
}

TEST(ZeroSteps, ThrowAwayMicroStepsThatWereReduced) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    for (const ZeroStage stage : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients}) {
      const at::Tensor a = Leaf({128}, 1);
      auto engine = Engine(communicator, List({{"a", a}}),
                           {.zero_stage = stage, .reduce = ReduceWhen::kEachMicroStep});
      EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 1}}));
      const float before = First(a);
      EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
      if (communicator->rank() != Rank(1)) {  // which has no data
        EXPECT_OK(engine->Backward(a.sum().mul(100)));
      }
      EXPECT_THAT(engine->BroadcastBuffers(),
                  StatusIs(StatusCode::kFailedPrecondition, HasSubstr("are being reduced")));
      EXPECT_OK(engine->Discard());
      EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
      if (communicator->rank() != Rank(1)) {
        EXPECT_OK(engine->Backward(a.sum()));
        EXPECT_THAT(engine->Backward(a.sum()),
                    StatusIs(StatusCode::kFailedPrecondition, HasSubstr("it was called before")));
      }
      EXPECT_OK(Reduce(*engine, a.sum()));
      EXPECT_EQ(engine->counters().micro_steps, 2);
      EXPECT_EQ(engine->counters().collectives, 3);
      EXPECT_OK(engine->Update({}));
      EXPECT_EQ(First(a), before - 5);
    }
  });
}

TEST(ZeroPrecision, KeepsTheFp32ValuesForTheMasters) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({200}, 1 + communicator->rank().value());
    const at::Tensor exact = Values({200}, 1);  // of rank 0
    const at::Tensor frozen = Values({4}, 3);
    const at::Tensor same = a;
    auto engine = Engine(communicator, List({{"a", a}, {"frozen", frozen}}),
                         {.zero_stage = ZeroStage::kOptimizer, .precision = Precision::Bf16()});
    EXPECT_TRUE(a.is_same(same));
    EXPECT_EQ(a.scalar_type(), at::kBFloat16);
    EXPECT_EQ(frozen.scalar_type(), at::kBFloat16);
    EXPECT_EQ(a.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(a.equal(exact.to(at::kBFloat16)));
    for (int round = 0; round < 2; ++round) {  // of the tensors, then of the optimizer before
      EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 1}}));
      for (const FlatBucket& bucket : engine->layout().buckets()) {
        const auto [begin, end] = bucket.slice(communicator->rank());
        std::vector<float> values(static_cast<std::size_t>(end - begin));
        std::vector<std::uint16_t> parameters(values.size());
        EXPECT_OK(engine->optimizers()[0]->GetParameters(
            {.begin = begin, .parameters = {parameters.data(), end - begin, DType::kBFloat16}},
            values));
        for (std::int64_t i = begin; i < std::min<std::int64_t>(end, 200); ++i) {
          EXPECT_EQ(values[static_cast<std::size_t>(i - begin)], exact[i].item<float>());
        }
      }
    }
    // A little at a time, which bf16 alone would lose.
    for (int step = 0; step < 64; ++step) {
      EXPECT_OK(Reduce(*engine, a.to(at::kFloat).sum()));
      EXPECT_OK(engine->Update({.gradient_scale = 0x1p-13}));
    }
    EXPECT_TRUE(a.allclose(exact.sub(2 * 64 * 0x1p-13).to(at::kBFloat16), 0.01, 1e-4));
  });
}

TEST(ZeroPrecision, TakesWhatTheUserHasChangedSince) {
  const at::Tensor a = Leaf({100}, 1);
  auto engine = Engine(Alone(), List({{"a", a}}), {.precision = Precision::Bf16()});
  a.detach()[7] = 42.0;
  EXPECT_OK(engine->SetOptimizer(Sgd{}));
  EXPECT_EQ(a[7].item<float>(), 42);
  EXPECT_EQ(a[8].item<float>(), Values({100}, 1).to(at::kBFloat16)[8].item<float>());
}

TEST(ZeroOptions, ThatDoNotGoTogetherAreRefused) {
  const at::Tensor a = Leaf({100}, 1);
  const auto refused = [&](DataParallelOptions options, const char* text) {
    EXPECT_THAT(DataParallel::Create(Alone(), List({{"a", a}}), std::move(options)),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  const auto compression = [] { return Bf16Compression(); };
  refused({.zero_stage = ZeroStage::kOptimizer, .compression = compression()},
          "for fewer bytes set precision.reduction to bfloat16");
  refused({.reduce = ReduceWhen::kEachMicroStep, .compression = compression()},
          "use ReduceWhen::kOnce");
  refused({.precision = {.reduction = DType::kBFloat16}, .compression = compression()},
          "leave it at float32");
  refused({.precision = {.parameters = DType::kFloat16, .masters = Masters::kKahan}},
          "masters kahan are for bfloat16");
  EXPECT_EQ(a.scalar_type(), at::kFloat);
  EXPECT_OK(DataParallel::Create(Alone(), List({{"a", a}}), {}));
}

TEST(ZeroOptions, MustBeTheSameOnAllRanks) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({100}, 1);
    const ZeroStage stage =
        communicator->rank() == Rank(1) ? ZeroStage::kGradients : ZeroStage::kOptimizer;
    EXPECT_THAT(DataParallel::Create(communicator, List({{"a", a}}), {.zero_stage = stage}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("zero_stage")));
  });
}

TEST(ZeroModel, ChangedAfterCreationIsFoundAndNamed) {
  for (const ZeroStage stage : {ZeroStage::kOptimizer, ZeroStage::kGradients}) {
    const at::Tensor a = Leaf({100}, 1);
    const at::Tensor b = Leaf({10}, 2);
    auto engine = Engine(Alone(), List({{"a", a}, {"b", b}}), {.zero_stage = stage});
    const at::Tensor before = b.detach();
    at::Tensor(b).set_data(b.detach().to(at::kDouble));
    EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("parameter b was moved")));
    at::Tensor(b).set_data(before);
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  }
}

// The peers are on their way to the update, and would wait for a rank that does not take part.
TEST(ZeroOptions, AnUpdateThatOneRankRefusesEndsAll) {
  for (const bool is_moved : {false, true}) {
    RunRanks(2, [is_moved](std::shared_ptr<Communicator> communicator) {
      const bool is_faulty = communicator->rank() == Rank(1);
      const at::Tensor a = Leaf({128}, 1);
      auto engine = Engine(communicator, List({{"a", a}}), {.zero_stage = ZeroStage::kOptimizer});
      EXPECT_OK(engine->SetOptimizer(Sgd{}));
      EXPECT_OK(Reduce(*engine, a.sum()));
      if (is_faulty && is_moved) a.set_data(a.detach().clone());
      const double nan = std::numeric_limits<double>::quiet_NaN();
      const Status refused = engine->Update({.gradient_scale = is_faulty && !is_moved ? nan : 1.0});
      EXPECT_THAT(Message(refused), HasSubstr("rank 1, step 1, Update: "));
      EXPECT_THAT(Message(refused),
                  HasSubstr(is_moved ? "parameter a was moved" : "gradient_scale is nan"));
      EXPECT_FALSE(engine->status().ok());
    });
  }
}

// AdamW whose state one rank has no room for.
class OneRankIsFull final : public Optimizer {
 public:
  explicit OneRankIsFull(bool is_full) : is_full_(is_full) {}
  std::string_view name() const override { return adamw_.name(); }
  int state_version() const override { return adamw_.state_version(); }
  std::vector<std::string> state_names() const override { return adamw_.state_names(); }
  double learning_rate() const override { return adamw_.learning_rate(); }
  const ParameterGroups& groups() const override { return adamw_.groups(); }
  std::string Describe() const override { return adamw_.Describe(); }
  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options) const override {
    if (is_full_) return ResourceExhaustedError("the disk is full");
    return adamw_.Bind(layout, std::move(options));
  }

 private:
  AdamW adamw_{{.learning_rate = 0.1}};
  bool is_full_;
};

TEST(ZeroOptions, AnOptimizerThatOneRankCannotBindIsSetOnNone) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({128}, 1);
    auto engine = Engine(
        communicator, List({{"a", a}}),
        {.zero_stage = ZeroStage::kOptimizer, .precision = {.parameters = DType::kBFloat16}});
    const Status failed = engine->SetOptimizer(OneRankIsFull(communicator->rank() == Rank(1)));
    EXPECT_THAT(Message(failed), HasSubstr("the disk is full"));
    EXPECT_TRUE(engine->optimizers().empty());
    EXPECT_OK(engine->SetOptimizer(OneRankIsFull(false)));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_THAT(engine->SetOptimizer(Sgd{}), StatusIs(StatusCode::kFailedPrecondition,
                                                      HasSubstr("micro-steps of a step are open")));
    EXPECT_OK(engine->Backward(a.sum()));
    EXPECT_OK(engine->FinishGradients({}));
    EXPECT_OK(engine->Update({}));
  });
}

}  // namespace
}  // namespace ait
