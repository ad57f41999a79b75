// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <tuple>

#include "activation/chain_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::ChainModel;
using testing::Equal;

/// Counts what it is asked to save.
class Counts final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedTensor> Save(const at::Tensor&) override {
    ++saved;
    return nullptr;
  }
  int saved = 0;
};

TEST(ActivationPlan, GivesTheSameGradientsWithEveryAction) {
  const ChainModel model(4);
  const at::Tensor input = at::randn({32, ChainModel::kWidth});
  ActivationPlan kept;
  model.Step(kept, input);
  const auto expected = model.Gradients();
  ActivationPlan plan({.offload = std::make_shared<Counts>()});
  for (const SegmentAction first : {SegmentAction::kRecompute, SegmentAction::kOffload}) {
    for (const SegmentAction second :
         {SegmentAction::kKeep, SegmentAction::kRecompute, SegmentAction::kOffload}) {
      plan.Set("blocks.0", first);
      plan.Set("blocks.2", second);
      model.Step(plan, input);
      EXPECT_TRUE(Equal(model.Gradients(), expected));
    }
  }
}

TEST(ActivationPlan, KeepsWhatItWasToldNothingAbout) {
  ActivationPlan plan;
  EXPECT_EQ(plan.action("blocks.0"), SegmentAction::kKeep);
  plan.Set("blocks.0", SegmentAction::kRecompute);
  EXPECT_EQ(plan.action("blocks.0"), SegmentAction::kRecompute);
  EXPECT_EQ(plan.action("blocks.00"), SegmentAction::kKeep);
  plan.Set("blocks.0", SegmentAction::kKeep);
  EXPECT_EQ(plan.action("blocks.0"), SegmentAction::kKeep);
  plan.Set("blocks.1", SegmentAction::kOffload);
  EXPECT_EQ(plan.actions().size(), 2u);
  plan.Clear();
  EXPECT_EQ(plan.action("blocks.1"), SegmentAction::kKeep);
}

TEST(ActivationPlan, RunsASegmentAgainIfItIsRecomputed) {
  const at::Tensor weight = at::randn({8, 8}).set_requires_grad(true);
  const at::Tensor x = at::randn({4, 8});
  ActivationPlan plan;
  int runs = 0;
  const auto step = [&] {
    plan.Run(
            "only",
            [&](const at::Tensor& in) {
              ++runs;
              return at::matmul(at::gelu(at::matmul(in, weight)), weight);
            },
            x)
        .sum()
        .backward();
  };
  step();
  EXPECT_EQ(runs, 1);
  plan.Set("only", SegmentAction::kRecompute);
  step();
  EXPECT_EQ(runs, 3);
}

TEST(ActivationPlan, OnlyOffloadedSegmentsMeetThePolicy) {
  const ChainModel model(3);
  const at::Tensor input = at::randn({8, ChainModel::kWidth});
  const auto policy = std::make_shared<Counts>();
  ActivationPlan plan({.offload = policy});
  model.Step(plan, input);
  EXPECT_EQ(policy->saved, 0);
  plan.Set("blocks.1", SegmentAction::kOffload);
  model.Step(plan, input);
  const int once = policy->saved;
  EXPECT_GT(once, 0);
  plan.Set("blocks.2", SegmentAction::kOffload);
  model.Step(plan, input);
  EXPECT_EQ(policy->saved, 3 * once);
  EXPECT_EQ(SavedTensorScope::Current(), nullptr);
}

TEST(ActivationPlan, ReturnsWhatTheFunctionReturns) {
  ActivationPlan plan;
  plan.Set("pair", SegmentAction::kRecompute);
  const at::Tensor x = at::randn({3}).set_requires_grad(true);
  const auto [number, tensor] = plan.Run(
      "pair", [](const at::Tensor& in, int n) { return std::tuple(n + 1, in.exp()); }, x, 41);
  EXPECT_EQ(number, 42);
  tensor.sum().backward();
  EXPECT_TRUE(x.grad().equal(x.exp().detach()));
  int called = 0;
  plan.Run("nothing", [&] { ++called; });
  EXPECT_EQ(called, 1);
  const auto none = plan.Run("optional", [] { return std::optional<at::Tensor>(); });
  EXPECT_FALSE(none.has_value());
}

TEST(ActivationPlan, LetsExceptionsOut) {
  ActivationPlan plan({.offload = std::make_shared<Counts>()});
  for (const SegmentAction action :
       {SegmentAction::kKeep, SegmentAction::kRecompute, SegmentAction::kOffload}) {
    plan.Set("bad", action);
    EXPECT_THROW(plan.Run("bad", []() -> at::Tensor { throw std::runtime_error("no"); }),
                 std::runtime_error);
    EXPECT_EQ(SavedTensorScope::Current(), nullptr);
  }
}

}  // namespace
}  // namespace ait
