// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/adam.h"

#include <ATen/ops/_fused_adamw.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>

#include "optim/torch_oracle.h"

namespace ait {
namespace {

using ::ait::testing::ExpectEqualToTorch;
using ::ait::testing::LayoutOf;
using ::ait::testing::RandomFloats;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(AdamW, DefaultsAreThoseOfTorch) {
  const torch::optim::AdamWOptions torch;
  const AdamWOptions ours;
  EXPECT_EQ(ours.learning_rate, torch.lr());
  EXPECT_EQ(ours.beta1, std::get<0>(torch.betas()));
  EXPECT_EQ(ours.beta2, std::get<1>(torch.betas()));
  EXPECT_EQ(ours.epsilon, torch.eps());
  EXPECT_EQ(ours.weight_decay, torch.weight_decay());
}

TEST(AdamW, EqualsTorchOverOneHundredSteps) {
  const auto own = torch::optim::AdamWOptions(3e-3).betas({0.9, 0.95}).weight_decay(0.1);
  ExpectEqualToTorch<torch::optim::AdamW>(
      AdamW{{.learning_rate = 3e-3, .beta2 = 0.95, .weight_decay = 0.1},
            {NoDecayForNormsAndBiases()}},
      own, torch::optim::AdamWOptions(own).weight_decay(0));
}

TEST(AdamW, EqualsTorchWithLearningRatesByGroup) {
  const auto own = torch::optim::AdamWOptions(3e-3).betas({0.4, 0.999}).eps(1e-3);
  ExpectEqualToTorch<torch::optim::AdamW>(
      AdamW{{.learning_rate = 3e-3, .beta1 = 0.4, .epsilon = 1e-3},
            {{.name = "vectors", .max_dimensions = 1, .learning_rate = 1e-2}}},
      own, torch::optim::AdamWOptions(own).lr(1e-2));
}

TEST(Adam, DefaultsAreThoseOfTorch) {
  const torch::optim::AdamOptions torch;
  const AdamOptions ours;
  EXPECT_EQ(ours.learning_rate, torch.lr());
  EXPECT_EQ(ours.beta1, std::get<0>(torch.betas()));
  EXPECT_EQ(ours.beta2, std::get<1>(torch.betas()));
  EXPECT_EQ(ours.epsilon, torch.eps());
  EXPECT_EQ(ours.weight_decay, torch.weight_decay());
}

TEST(Adam, EqualsTorchOverOneHundredSteps) {
  const auto own = torch::optim::AdamOptions(3e-3).weight_decay(0.1);
  ExpectEqualToTorch<torch::optim::Adam>(
      Adam{{.learning_rate = 3e-3, .weight_decay = 0.1}, {NoDecayForNormsAndBiases()}}, own,
      torch::optim::AdamOptions(own).weight_decay(0));
}

TEST(Adam, AmsgradEqualsTorchOverOneHundredSteps) {
  const auto own = torch::optim::AdamOptions(3e-3).weight_decay(0.1).amsgrad(true);
  ExpectEqualToTorch<torch::optim::Adam>(
      Adam{{.learning_rate = 3e-3, .weight_decay = 0.1, .variant = AdamVariant::kAmsgrad},
           {NoDecayForNormsAndBiases()}},
      own, torch::optim::AdamOptions(own).weight_decay(0));
  const auto decoupled = torch::optim::AdamWOptions(3e-3).betas({0.5, 0.6}).amsgrad(true);
  ExpectEqualToTorch<torch::optim::AdamW>(
      AdamW{{.learning_rate = 3e-3, .beta1 = 0.5, .beta2 = 0.6, .variant = AdamVariant::kAmsgrad}},
      decoupled, decoupled);
}

// One step after another from the same numbers: parameters differ from torch's fused kernel by no
// more than the rounding of the update and of the parameter, the state by the rounding of fused
// multiply-add.
TEST(AdamW, EachStepEqualsTheFusedKernelOfTorchToTheLastBits) {
  const ParameterLayout layout = LayoutOf({10'007});
  const std::int64_t size = layout.parameters[0].size();
  std::vector<float> parameters = RandomFloats(layout.owned[0].end, 1);
  ASSERT_OK_AND_ASSIGN(const auto bound,
                       (AdamW{{.learning_rate = 1e-3, .weight_decay = 0.1}}.Bind(layout)));
  std::vector<StateSlice> state = bound->State();
  constexpr float kUlp = std::numeric_limits<float>::epsilon();
  for (int step = 1; step <= 10; ++step) {
    std::vector<float> gradients = RandomFloats(layout.owned[0].end, 10 + step, 0.1f);
    const at::Tensor before = at::from_blob(parameters.data(), {size}).clone();
    const at::Tensor p = before.clone();
    const at::Tensor g = at::from_blob(gradients.data(), {size}).clone();
    const at::Tensor m = at::from_blob(state[0].floats().data(), {size}).clone();
    const at::Tensor v = at::from_blob(state[1].floats().data(), {size}).clone();
    at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {at::full({}, static_cast<float>(step))}, 1e-3, 0.9,
                      0.999, 0.1, 1e-8, false, false);

    ASSERT_OK(bound->BeginStep({}));
    ASSERT_OK(
        bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
    const at::Tensor ours = at::from_blob(parameters.data(), {size});
    const at::Tensor bound_p = 2 * kUlp * (ours - before).abs() + kUlp * ours.abs();
    EXPECT_TRUE(((ours - p).abs() <= bound_p).all().item<bool>()) << "step " << step;
    EXPECT_TRUE(at::allclose(at::from_blob(state[0].floats().data(), {size}), m, 4 * kUlp, 2e-8));
    EXPECT_TRUE(at::allclose(at::from_blob(state[1].floats().data(), {size}), v, 4 * kUlp, 0));
  }
}

TEST(AdamW, AZeroLearningRateMovesNothingButTheState) {
  const ParameterLayout layout = LayoutOf({65});
  ASSERT_OK_AND_ASSIGN(const auto bound, (AdamW{{.learning_rate = 0}}.Bind(layout)));
  std::vector<float> parameters = RandomFloats(128, 1);
  const std::vector<float> before = parameters;
  std::vector<float> gradients = RandomFloats(128, 2);
  ASSERT_OK(bound->BeginStep({}));
  ASSERT_OK(
      bound->Update({.begin = 0, .parameters = View(parameters), .gradients = View(gradients)}));
  EXPECT_TRUE(testing::SameBits(parameters, before));
  EXPECT_NE(bound->State()[0].floats()[3], 0);
}

TEST(Adam, ABadOptionIsAnErrorThatNamesOptimizerOptionAndValue) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT((AdamW{{.learning_rate = -1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("adamw: learning_rate is -1;")));
  EXPECT_THAT((AdamW{{.learning_rate = nan}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("learning_rate is nan")));
  EXPECT_THAT(
      (AdamW{{.beta1 = 1}}.Bind({})),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("beta1 is 1"), HasSubstr("below 1"))));
  EXPECT_THAT((AdamW{{.beta2 = -0.1}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("beta2 is -0.1")));
  EXPECT_THAT((Adam{{.epsilon = -1e-8}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("adam: epsilon is -1e-08")));
  EXPECT_THAT((Adam{{.weight_decay = infinity}}.Bind({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("weight_decay is inf")));
}

TEST(Adam, StateIsNamedAsInTorch) {
  EXPECT_EQ(AdamW().name(), "adamw");
  EXPECT_EQ(Adam().name(), "adam");
  EXPECT_THAT(AdamW().state_names(), ::testing::ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(AdamW{{.variant = AdamVariant::kAmsgrad}}.state_names(),
              ::testing::ElementsAre("exp_avg", "exp_avg_sq", "max_exp_avg_sq"));
}

}  // namespace
}  // namespace ait
