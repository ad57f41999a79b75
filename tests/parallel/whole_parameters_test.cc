// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/whole_parameters.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <c10/core/GradMode.h>
// clang-format on

#include "ait/optim/adam.h"
#include "parallel/engine_support.h"
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
using ::ait::testing::UnitModel;
using ::testing::HasSubstr;

TEST(WholeParametersTest, WhatIsWrittenIsKept) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    RunRanks(3, [&](const std::shared_ptr<Communicator>& communicator) {
      UnitModel model(1);
      DataParallelOptions options = {.zero_stage = ZeroStage::kParameters,
                                     .units = UnitModel::Units()};
      options.precision.parameters = dtype;
      auto engine = Engine(communicator, model.Parameters(), options);
      ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
      {
        auto whole = engine->GatherFull();
        ASSERT_OK(whole);
        const c10::NoGradGuard no_grad;
        model.side.fill_(2);
        model.blocks[0].frozen.fill_(3);
        model.position.fill_(4);
        ASSERT_OK(whole->Keep());
        model.side.fill_(100);
      }
      EXPECT_FALSE(CatchAsStatus([&] { return model.side.sum(); }).ok());
      auto whole = engine->GatherFull();
      ASSERT_OK(whole);
      EXPECT_EQ(model.side.sum().item<float>(), 2 * 144) << "what was not kept is lost";
      EXPECT_EQ(model.blocks[0].frozen.sum().item<float>(), 3 * 144);
      EXPECT_EQ(model.position.sum().item<float>(), 4 * 12);
      ASSERT_OK(communicator->Barrier().Wait());
      engine.reset();
      EXPECT_THAT(whole->Keep(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("gone")));
    });
  }
}

TEST(WholeParametersTest, BelowStage3EverythingIsWholeAnyway) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(), {});
  ASSERT_NE(engine, nullptr);
  auto whole = engine->GatherFull();
  ASSERT_OK(whole);
  EXPECT_OK(whole->Keep());
  WholeParameters moved = *std::move(whole);
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
  EXPECT_THAT(moved.Keep(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("step is not over")));
  EXPECT_OK(engine->GatherFull().status()) << "to save what there is";
  ASSERT_OK(engine->Discard());
  EXPECT_OK(moved.Keep()) << "a refusal does not end the engine";
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
  EXPECT_THAT(engine->GatherFull().status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("step is not over")));
}

TEST(WholeParametersTest, ARunThatEndsWhileItAccumulatesMayBeSaved) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(),
                       {.zero_stage = ZeroStage::kParameters, .units = UnitModel::Units()});
  ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  const at::Tensor tokens = testing::Tokens(6, 1);
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
  ASSERT_OK(engine->Backward(model.Loss(*engine, tokens, tokens)));
  {
    ASSERT_OK(engine->GatherFull().status());
  }
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
  ASSERT_OK(engine->Backward(model.Loss(*engine, tokens, tokens)));
  ASSERT_OK(engine->FinishGradients({}).status());
  EXPECT_OK(engine->Update({})) << "and may go on";
}

TEST(WholeParametersTest, WhatAStepHasReleasedIsNotKept) {
  UnitModel model(1);
  auto engine = Engine(Alone(), model.Parameters(),
                       {.zero_stage = ZeroStage::kParameters, .units = UnitModel::Units()});
  ASSERT_OK(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  auto whole = engine->GatherFull();
  ASSERT_OK(whole);
  ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
  EXPECT_THAT(whole->Keep(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is not over")));
  const at::Tensor tokens = testing::Tokens(6, 1);
  ASSERT_OK(engine->Backward(model.Loss(*engine, tokens, tokens)));
  ASSERT_OK(engine->FinishGradients({}).status());
  ASSERT_OK(engine->Update({}));
  EXPECT_THAT(whole->Keep(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("call GatherFull again")));
  whole = engine->GatherFull();
  ASSERT_OK(whole);
  EXPECT_OK(whole->Keep()) << "a refusal does not end the engine";
}

}  // namespace
}  // namespace ait
