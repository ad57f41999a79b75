// SPDX-License-Identifier: Apache-2.0
// All stages of ZeRO give the same parameters and the same optimizer state, bit for bit.
#include "ait/optim/adafactor.h"
#include "ait/optim/adam.h"
#include "ait/optim/lion.h"
#include "ait/optim/muon.h"
#include "ait/optim/sgd.h"
#include "parallel/zero_training.h"

namespace ait {
namespace {

using ::ait::testing::Difference;
using ::ait::testing::TrainZeroThreads;
using ::ait::testing::ZeroResult;
using ::ait::testing::ZeroRun;

class ZeroStages : public ::testing::TestWithParam<int> {};

void ExpectEqualStages(int ranks, ZeroRun run) {
  for (const ReduceWhen reduce : {ReduceWhen::kOnce, ReduceWhen::kEachMicroStep}) {
    run.options.reduce = reduce;
    run.options.zero_stage = ZeroStage::kNone;
    const ZeroResult expected = TrainZeroThreads(ranks, run);
    for (const ZeroStage stage :
         {ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kParameters}) {
      run.options.zero_stage = stage;
      EXPECT_EQ(Difference(TrainZeroThreads(ranks, run), expected), "")
          << "stage " << static_cast<int>(stage) << ", " << ranks << " ranks, reduce "
          << static_cast<int>(reduce);
    }
  }
}

TEST_P(ZeroStages, GiveTheSameBits) {
  const int ranks = GetParam();
  const AdamW adamw({.learning_rate = 1e-2});
  ZeroRun run{.options = {.first_bucket = Bytes(256), .bucket_cap = Bytes(2000)},
              .optimizer = &adamw,
              .steps = 50,
              .micro_steps = 3};
  ExpectEqualStages(ranks, run);
  if (ranks > 4) return;
  run.micro_steps = 1;
  ExpectEqualStages(ranks, run);
  const Sgd sgd({.learning_rate = 1e-2, .momentum = 0.9});
  run.optimizer = &sgd;
  if (ranks < 4) ExpectEqualStages(ranks, run);
  const Lion lion({.learning_rate = 1e-3});
  run.optimizer = &lion;
  if (ranks == 3) ExpectEqualStages(ranks, run);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ZeroStages, ::testing::Values(1, 2, 3, 4, 7, 8));

TEST(ZeroBuckets, ChangeNoBit) {
  const AdamW adamw({.learning_rate = 1e-2});
  for (const ReduceWhen reduce : {ReduceWhen::kOnce, ReduceWhen::kEachMicroStep}) {
    ZeroRun run{.options = {.reduce = reduce}, .optimizer = &adamw, .steps = 20, .micro_steps = 2};
    const ZeroResult expected = TrainZeroThreads(3, run);  // everything in one
    for (const std::int64_t bytes : {256, 1500, 6000}) {
      for (const ZeroStage stage :
           {ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kParameters}) {
        run.options.zero_stage = stage;
        run.options.first_bucket = run.options.bucket_cap = Bytes(bytes);
        EXPECT_EQ(Difference(TrainZeroThreads(3, run), expected), "") << bytes;
      }
    }
  }
}

TEST(ZeroSlices, OfWholeParametersChangeNoBit) {
  const AdamW adamw({.learning_rate = 1e-2});
  ZeroRun run{.optimizer = &adamw, .steps = 20};
  run.options.first_bucket = run.options.bucket_cap = Bytes(3000);
  const ZeroResult expected = TrainZeroThreads(4, run);
  run.options.slices = SliceRule::kWholeParameters;
  for (const ZeroStage stage :
       {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kParameters}) {
    run.options.zero_stage = stage;
    EXPECT_EQ(Difference(TrainZeroThreads(4, run), expected), "") << static_cast<int>(stage);
  }
}

TEST(ZeroSlices, LetOptimizersOfWholeParametersGiveTheSameBits) {
  const Muon muon({.learning_rate = 1e-2});
  const Adafactor adafactor;
  for (const Optimizer* optimizer :
       {static_cast<const Optimizer*>(&muon), static_cast<const Optimizer*>(&adafactor)}) {
    ExpectEqualStages(3, {.options = {.slices = SliceRule::kWholeParameters,
                                      .first_bucket = Bytes(3000),
                                      .bucket_cap = Bytes(3000)},
                          .optimizer = optimizer,
                          .steps = 15});
  }
}

TEST(ZeroPrecision, OfBf16WithMastersGivesTheSameBits) {
  const AdamW adamw({.learning_rate = 1e-2});
  for (const DType reduction : {DType::kFloat32, DType::kBFloat16}) {
    ZeroRun run{.options = {.precision = Precision::Bf16(),
                            .first_bucket = Bytes(256),
                            .bucket_cap = Bytes(2000)},
                .optimizer = &adamw,
                .steps = 30,
                .micro_steps = 2};
    run.options.precision.reduction = reduction;
    for (const int ranks : {1, 3}) ExpectEqualStages(ranks, run);
  }
}

}  // namespace
}  // namespace ait
