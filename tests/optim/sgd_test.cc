// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/sgd.h"

#include <torch/optim/sgd.h>

#include "optim/torch_oracle.h"

namespace ait {
namespace {

using ::ait::testing::ExpectEqualToTorch;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(Sgd, DefaultsAreThoseOfTorch) {
  const torch::optim::SGDOptions torch(1e-3);
  const SgdOptions ours;
  EXPECT_EQ(ours.learning_rate, torch.lr());
  EXPECT_EQ(ours.momentum, torch.momentum());
  EXPECT_EQ(ours.dampening, torch.dampening());
  EXPECT_EQ(ours.weight_decay, torch.weight_decay());
  EXPECT_EQ(ours.momentum_form == Momentum::kNesterov, torch.nesterov());
}

TEST(Sgd, EqualsTorchWithoutMomentum) {
  const auto own = torch::optim::SGDOptions(0.03).weight_decay(0.1);
  ExpectEqualToTorch<torch::optim::SGD>(
      Sgd{{.learning_rate = 0.03, .weight_decay = 0.1}, {NoDecayForNormsAndBiases()}}, own,
      torch::optim::SGDOptions(own).weight_decay(0));
}

TEST(Sgd, EqualsTorchWithMomentumAndDampening) {
  const auto own = torch::optim::SGDOptions(0.03).momentum(0.9).dampening(0.3).weight_decay(0.01);
  ExpectEqualToTorch<torch::optim::SGD>(
      Sgd{{.learning_rate = 0.03, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
          {NoDecayForNormsAndBiases()}},
      own, torch::optim::SGDOptions(own).weight_decay(0));
}

TEST(Sgd, EqualsTorchWithNesterovMomentum) {
  const auto own = torch::optim::SGDOptions(0.03).momentum(0.9).nesterov(true).weight_decay(0.01);
  ExpectEqualToTorch<torch::optim::SGD>(
      Sgd{{.learning_rate = 0.03,
           .momentum = 0.9,
           .weight_decay = 0.01,
           .momentum_form = Momentum::kNesterov},
          {{.name = "vectors", .max_dimensions = 1, .learning_rate = 0.01}}},
      own, torch::optim::SGDOptions(own).lr(0.01));
}

TEST(Sgd, HasStateOnlyWithMomentum) {
  EXPECT_THAT(Sgd().state_names(), ::testing::IsEmpty());
  EXPECT_THAT(Sgd({.momentum = 0.9}).state_names(), ::testing::ElementsAre("momentum_buffer"));
}

TEST(Sgd, ABadOptionIsAnErrorThatNamesItAndItsValue) {
  EXPECT_THAT(Sgd({.learning_rate = -0.1}).Bind({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("sgd: learning_rate is -0.1")));
  EXPECT_THAT(Sgd({.momentum = -0.9}).Bind({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("momentum is -0.9")));
  EXPECT_THAT(Sgd({.weight_decay = -1}).Bind({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("weight_decay is -1")));
  EXPECT_THAT(Sgd({.momentum_form = Momentum::kNesterov}).Bind({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("momentum 0 and dampening 0")));
  EXPECT_THAT(
      Sgd({.momentum = 0.9, .dampening = 0.5, .momentum_form = Momentum::kNesterov}).Bind({}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("dampening 0.5")));
}

}  // namespace
}  // namespace ait
