// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/saved_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "support/status_matchers.h"

namespace ait {
namespace {

class Clone final : public SavedTensor {
 public:
  Clone(const at::Tensor& tensor, int& restored, int& alive)
      : tensor_(tensor.clone()), restored_(restored), alive_(alive) {
    ++alive_;
  }
  ~Clone() override { --alive_; }
  at::Tensor Restore() override {
    ++restored_;
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  int& restored_;
  int& alive_;
};

/// Keeps a copy of each tensor and counts.
class Clones final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
    ++saved;
    EXPECT_FALSE(tensor.requires_grad());
    return std::make_unique<Clone>(tensor, restored, alive);
  }
  int saved = 0, restored = 0, alive = 0;
};

class Refuses final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedTensor> Save(const at::Tensor&) override { throw std::runtime_error("no"); }
};

class KeepsAll final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedTensor> Save(const at::Tensor&) override { return nullptr; }
};

at::Tensor Leaf() { return at::linspace(-1, 1, 12).view({3, 4}).clone().set_requires_grad(true); }
at::Tensor Loss(const at::Tensor& x) { return x.tanh().sin().mm(x.t()).sum(); }

at::Tensor PlainGradient() {
  const at::Tensor x = Leaf();
  Loss(x).backward();
  return x.grad();
}

TEST(SavedTensors, PolicySeesWhatIsSavedAndBackwardGetsItBack) {
  const auto policy = std::make_shared<Clones>();
  const at::Tensor x = Leaf();
  at::Tensor loss;
  {
    const SavedTensorScope scope(policy);
    EXPECT_EQ(SavedTensorScope::Current(), policy);
    loss = Loss(x);
  }
  EXPECT_EQ(SavedTensorScope::Current(), nullptr);
  EXPECT_EQ(policy->saved, 4);  // of tanh its output, of sin its input, of mm both factors
  EXPECT_EQ(policy->alive, 4);
  loss.backward();
  EXPECT_EQ(policy->restored, 4);
  EXPECT_EQ(policy->alive, 0);
  EXPECT_TRUE(at::equal(x.grad(), PlainGradient()));
}

TEST(SavedTensors, GraphThatIsRetainedAsksAgain) {
  const auto policy = std::make_shared<Clones>();
  const at::Tensor x = Leaf();
  at::Tensor loss;
  {
    const SavedTensorScope scope(policy);
    loss = Loss(x);
  }
  loss.backward({}, true);
  loss.backward({}, true);
  EXPECT_EQ(policy->restored, 8);
  EXPECT_EQ(policy->alive, 4);
  loss = at::Tensor();
  EXPECT_EQ(policy->alive, 0);
  EXPECT_TRUE(at::equal(x.grad(), PlainGradient() * 2));
}

TEST(SavedTensors, InnermostScopeDecidesAlone) {
  const auto outer = std::make_shared<Clones>(), inner = std::make_shared<Clones>();
  const SavedTensorScope outer_scope(outer);
  const at::Tensor x = Leaf();
  at::Tensor y;
  {
    const SavedTensorScope scope(inner);
    y = x.sin();
    const SavedTensorScope none(nullptr);
    y = y.sin();
  }
  EXPECT_EQ(inner->saved, 1);
  EXPECT_EQ(outer->saved, 0);
  y = y.sin();
  EXPECT_EQ(outer->saved, 1);
}

TEST(SavedTensors, OtherThreadsHaveNoScope) {
  const auto policy = std::make_shared<Clones>();
  const SavedTensorScope scope(policy);
  std::thread([] { Loss(Leaf()).backward(); }).join();
  EXPECT_EQ(policy->saved, 0);
}

TEST(SavedTensors, BackwardOnAnotherThreadRestores) {
  const auto policy = std::make_shared<Clones>();
  const at::Tensor x = Leaf();
  at::Tensor loss;
  {
    const SavedTensorScope scope(policy);
    loss = Loss(x);
  }
  std::thread([&] { loss.backward(); }).join();
  EXPECT_TRUE(at::equal(x.grad(), PlainGradient()));
}

TEST(SavedTensors, TensorKeptAsItIsIsStillGuardedAgainstChanges) {
  const SavedTensorScope scope(std::make_shared<KeepsAll>());
  const at::Tensor x = Leaf(), y = x.tanh(), loss = y.sum();
  y.detach().add_(1);
  try {
    loss.backward();
    FAIL() << "backward used a tensor that was changed";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("is at version 1, expected version 0"),
              std::string::npos)
        << error.what();
  }
}

TEST(SavedTensors, WhatAPolicyThrowsComesOutOfTheOperation) {
  const at::Tensor x = Leaf();
  {
    const SavedTensorScope scope(std::make_shared<Refuses>());
    EXPECT_THROW(x.tanh(), std::runtime_error);
  }
  EXPECT_NO_THROW(Loss(x).backward());
}

/// Keeps copies, but not of parameters.
class LeavesParameters final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
    return clones.Save(tensor);
  }
  bool TakesParameters() const override { return false; }
  Clones clones;
};

TEST(SavedTensors, PolicyMayLeaveParametersAndTheirViews) {
  const auto policy = std::make_shared<LeavesParameters>();
  const at::Tensor x = Leaf();
  {
    const SavedTensorScope scope(policy);
    const at::Tensor loss = x.sin().mm(x.view({4, 3})).sum();  // of sin x; of mm both factors
    EXPECT_EQ(policy->clones.saved, 1);
    loss.backward();
  }
  const at::Tensor gradient = x.grad();
  x.mutable_grad() = at::Tensor();
  x.sin().mm(x.view({4, 3})).sum().backward();
  EXPECT_TRUE(at::equal(gradient, x.grad()));
}

TEST(SavedTensors, AreAvailableInAProgramWithoutPython) {
  EXPECT_OK(SavedTensorScope::Available());
}

}  // namespace
}  // namespace ait
