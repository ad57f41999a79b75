// SPDX-License-Identifier: Apache-2.0
// Hybrid sharding: slices inside a group of ranks, replicas between groups.
#include "ait/optim/sgd.h"
#include "parallel/engine_support.h"
#include "parallel/zero_training.h"
#include "tensor/catch.h"

namespace ait {
namespace {

using ::ait::testing::Difference;
using ::ait::testing::Engine;
using ::ait::testing::First;
using ::ait::testing::Leaf;
using ::ait::testing::List;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TrainZeroThreads;
using ::ait::testing::ZeroModel;
using ::ait::testing::ZeroResult;
using ::ait::testing::ZeroRun;
using ::testing::HasSubstr;

// Hosts of `local` ranks each, one after the other.
void SplitIntoHosts(Communicator& all, int local, DataParallelOptions& options) {
  const int rank = all.rank().value();
  ASSERT_OK_AND_ASSIGN(options.hybrid.shard, all.Split(rank / local, rank));
  ASSERT_OK_AND_ASSIGN(options.hybrid.replicate, all.Split(rank % local, rank));
}

TEST(ZeroHybrid, GivesAllRanksTheSameBitsInEveryStage) {
  const AdamW adamw({.learning_rate = 1e-2});
  struct Groups {
    int ranks;
    int local;
  };
  struct Sums {
    ReduceWhen reduce;
    DType reduction = DType::kFloat32;
  };
  for (const auto& [ranks, local] : {Groups{4, 2}, Groups{6, 3}, Groups{3, 1}, Groups{2, 2}}) {
    for (const auto& [reduce, reduction] :
         {Sums{ReduceWhen::kOnce}, Sums{ReduceWhen::kEachMicroStep},
          Sums{ReduceWhen::kEachMicroStep, DType::kBFloat16}}) {
      ZeroRun run{.options = {.zero_stage = ZeroStage::kOptimizer,
                              .precision = {.reduction = reduction},
                              .reduce = reduce,
                              .first_bucket = Bytes(256),
                              .bucket_cap = Bytes(2000)},
                  .optimizer = &adamw,
                  .steps = 9,
                  .micro_steps = 2};
      const auto split = [local](Communicator& all, DataParallelOptions& options) {
        SplitIntoHosts(all, local, options);
      };
      const ZeroResult one = TrainZeroThreads(ranks, run, split);
      for (const ZeroStage stage : {ZeroStage::kGradients, ZeroStage::kParameters}) {
        run.options.zero_stage = stage;
        EXPECT_EQ(Difference(TrainZeroThreads(ranks, run, split), one), "")
            << ranks << ", stage " << static_cast<int>(stage) << ", " << Name(reduction);
      }
      if (local == ranks) {  // no replicas: nothing but sharding
        EXPECT_EQ(Difference(TrainZeroThreads(ranks, run), one), "") << ranks;
      }
    }
  }
}

// Those who wait for it stand in its shard group, in its replicas, and further off.
TEST(ZeroHybrid, AFailureOfOneRankEndsAll) {
  for (const ZeroStage stage : {ZeroStage::kGradients, ZeroStage::kParameters}) {
    for (const ReduceWhen reduce : {ReduceWhen::kOnce, ReduceWhen::kEachMicroStep}) {
      RunRanks(4, [stage, reduce](std::shared_ptr<Communicator> all) {
        const int rank = all->rank().value();
        const Time begin = SystemClock().now();
        const ZeroModel model;
        DataParallelOptions options{
            .zero_stage = stage, .reduce = reduce, .units = ZeroModel::Units()};
        SplitIntoHosts(*all, 2, options);
        auto engine = Engine(all, model.Parameters(), options);
        EXPECT_OK(engine->SetOptimizer(Sgd{}));
        EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
        if (rank == 1) {
          engine->Abort(OkStatus());
          EXPECT_OK(engine->status());
          engine->Abort(InternalError("the data has ended"));
        }
        const auto step = [&]() -> Status {
          AIT_RETURN_IF_ERROR(engine->Backward(model.Loss(*engine, rank, true, rank == 0)));
          return engine->FinishGradients({}).status();
        };
        const Status failed = internal::CatchAsStatus(step);
        EXPECT_THAT(Message(failed), HasSubstr("the data has ended"));
        EXPECT_FALSE(engine->status().ok());
        EXPECT_LT(SystemClock().now() - begin, std::chrono::seconds(15));
      });
    }
  }
}

TEST(ZeroHybrid, CountsEveryElementOnceInTheNorm) {
  RunRanks(4, [](std::shared_ptr<Communicator> all) {
    const at::Tensor a = Leaf({300}, 1);
    DataParallelOptions options{.zero_stage = ZeroStage::kGradients};
    SplitIntoHosts(*all, 2, options);
    auto engine = Engine(all, List({{"a", a}}), options);
    EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 1}}));
    const float before = First(a);
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(a.sum().mul(all->rank().value() + 1)));
    ASSERT_OK_AND_ASSIGN(const GradientSummary sum, engine->FinishGradients({}));
    EXPECT_DOUBLE_EQ(sum.norm, std::sqrt(300.0) * 10 / 4);
    EXPECT_OK(engine->Update({.gradient_scale = 0.25}));
    EXPECT_EQ(First(a), before - 2.5f);
    EXPECT_EQ(engine->layout().options().world_size, WorldSize(2));
    EXPECT_EQ(engine->Memory().measured.gradients, 4 * engine->layout().groups()[0].count / 2);
  });
}

TEST(ZeroHybrid, RefusesGroupsThatDoNotFit) {
  RunRanks(4, [](std::shared_ptr<Communicator> all) {
    const at::Tensor a = Leaf({300}, 1);
    const auto refused = [&](const DataParallelOptions& options, const char* text) {
      EXPECT_THAT(DataParallel::Create(all, List({{"a", a}}), options),
                  StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
    };
    DataParallelOptions options{.zero_stage = ZeroStage::kOptimizer};
    SplitIntoHosts(*all, 2, options);
    DataParallelOptions none = options;
    none.zero_stage = ZeroStage::kNone;
    refused(none, "kNone shards nothing");
    DataParallelOptions half = options;
    half.hybrid.replicate = nullptr;
    refused(half, "replicate is null");
    DataParallelOptions twice = options;
    twice.hybrid.replicate = all;
    refused(twice, "2 ranks that shard times 4 replicas are not the 4 ranks");
    DataParallelOptions same = options;  // the replicas shard with each other
    same.hybrid.replicate = options.hybrid.shard;
    refused(same, "hybrid sharding: ranks");
    EXPECT_OK(DataParallel::Create(all, List({{"a", a}}), options));
  });
}

}  // namespace
}  // namespace ait
