// SPDX-License-Identifier: Apache-2.0
// What `Checkpoint` refuses, and how things stand afterwards.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>
#include <string>

#include "ait/activation/checkpoint.h"
#include "ait/activation/saved_tensors.h"
#include "ait/base/throw_on_error.h"
#include "ait/tensor/autocast.h"

namespace ait {
namespace {

/// What `function` throws, as text; of ours the code is checked.
template <typename Function>
std::string ErrorOf(const Function& function) {
  try {
    function();
  } catch (const StatusException& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kFailedPrecondition) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << (text) << "\nlacks: " << (part)

at::Tensor Weight() { return at::linspace(-1, 1, 16).view({4, 4}).clone().set_requires_grad(true); }
at::Tensor Input() { return at::linspace(0, 1, 8).view({2, 4}).clone(); }

/// A layer that does something else from its second call on.
template <typename First, typename Then>
auto ChangesItsMind(int& calls, const First& first, const Then& then) {
  return [&calls, first, then](const at::Tensor& x) { return calls++ == 0 ? first(x) : then(x); };
}

TEST(CheckpointErrors, AnInputThatWasChangedInPlaceIsNamed) {
  const at::Tensor w = Weight(), x = Input();
  const auto layer = [&w](const at::Tensor&, const at::Tensor& in) { return in.mm(w).tanh(); };
  const at::Tensor y = Checkpoint({.name = "blocks.7"}, layer, Input(), x).sum();
  x.add_(1);
  const std::string error = ErrorOf([&] { y.backward(); });
  EXPECT_HAS(error, "checkpointed segment blocks.7: input 1, Float [2, 4] with strides [4, 1] on ");
  EXPECT_HAS(error, "changed in place");
  EXPECT_HAS(error, "at version 1, expected version 0");
}

TEST(CheckpointErrors, AFunctionThatChangesItsInputIsRefused) {
  const at::Tensor w = Weight();
  const auto layer = [&w](at::Tensor x) { return x.add_(1).mm(w); };
  const at::Tensor y = Checkpoint(layer, Input()).sum();
  EXPECT_HAS(ErrorOf([&] { y.backward(); }), "input 0");
}

TEST(CheckpointErrors, AParameterThatWasChangedInPlaceIsRefusedAsInThePlainRun) {
  const at::Tensor w = Weight();
  const at::Tensor y = Checkpoint(
                           {.name = "up"}, [&w](const at::Tensor& x) { return x.mm(w); },
                           Input().set_requires_grad(true))
                           .sum();
  w.detach().add_(1);
  const std::string error = ErrorOf([&] { y.backward(); });
  EXPECT_HAS(error, "segment up: saved tensor ");
  EXPECT_HAS(error, "Float [4, 4]");
  EXPECT_HAS(error, "at version 1, expected version 0");
}

TEST(CheckpointErrors, AResultThatTheSegmentHasSavedIsRefusedAsInThePlainRun) {
  const at::Tensor w = Weight();
  for (const bool checkpointed : {false, true}) {
    const auto layer = [&w](const at::Tensor& x) { return x.mm(w).tanh(); };  // saves its result
    const at::Tensor y = checkpointed ? Checkpoint(layer, Input()) : layer(Input());
    y.detach().mul_(2);
    EXPECT_HAS(ErrorOf([&] { y.sum().backward(); }), "expected version 0");
  }
}

TEST(CheckpointErrors, ChangesInPlaceInsideAreRefusedAsInThePlainRun) {
  const at::Tensor w = Weight();
  const auto layer = [&w](const at::Tensor& x) {
    const at::Tensor y = x.mm(w).tanh();
    const at::Tensor z = y * 2;
    y.detach().add_(1);
    return z.sin();
  };
  for (const bool checkpointed : {false, true}) {
    const at::Tensor z = checkpointed ? Checkpoint(layer, Input()) : layer(Input());
    EXPECT_HAS(ErrorOf([&] { z.sum().backward(); }), "version");
  }
}

TEST(CheckpointErrors, HarmlessChangesInPlacePass) {
  const at::Tensor w = Weight();
  const auto layer = [&w](const at::Tensor& x) { return x.mm(w).relu_().add(1).mul_(3).sin_(); };
  at::Tensor expected;
  for (const bool checkpointed : {false, true}) {
    w.mutable_grad() = at::Tensor();
    at::Tensor y = checkpointed ? Checkpoint(layer, Input()) : layer(Input());
    y.add_(1);  // sine saves its input
    y.square().sum().backward();
    if (!checkpointed) expected = w.grad();
  }
  EXPECT_TRUE(at::equal(w.grad(), expected));
}

TEST(CheckpointErrors, AnotherShapeNamesTheTensorAndBothValues) {
  const at::Tensor w = Weight();
  int calls = 0;
  const auto layer = ChangesItsMind(
      calls, [&w](const at::Tensor& x) { return x.mm(w).exp().sum(); },
      [&w](const at::Tensor& x) { return at::cat({x, x}).mm(w).exp().sum(); });
  const at::Tensor y = Checkpoint({.name = "moe"}, layer, Input());
  const std::string error = ErrorOf([&] { y.backward(); });
  EXPECT_HAS(error,
             "segment moe: saved tensor 0 of 2 was Float [2, 4] with strides [4, 1] on cpu in "
             "forward and is Float [4, 4] with strides [4, 1] on cpu when it runs again");
}

TEST(CheckpointErrors, AnotherDtypeOrStridesAreSeen) {
  const at::Tensor w = Weight();
  for (const bool dtype : {true, false}) {
    int calls = 0;
    const auto layer = ChangesItsMind(
        calls, [&w](const at::Tensor& x) { return (x * w.sum()).exp(); },
        [&w, dtype](const at::Tensor& x) {
          return dtype ? (x.to(at::kDouble) * w.sum()).exp()
                       : (x.t().contiguous().t() * w.sum()).exp();
        });
    const std::string error = ErrorOf([&] { Checkpoint(layer, Input()).sum().backward(); });
    EXPECT_HAS(error, dtype ? "is Double [2, 4]" : "is Float [2, 4] with strides [1, 2]");
  }
}

TEST(CheckpointErrors, FewerAndMoreTensorsAreSeen) {
  const at::Tensor w = Weight();
  const auto one = [&w](const at::Tensor& x) { return x.mm(w).sum(); };
  const auto two = [&w](const at::Tensor& x) { return x.mm(w).sin().sum(); };
  int calls = 0;
  EXPECT_HAS(ErrorOf([&] {
               Checkpoint({.name = "a"}, ChangesItsMind(calls, two, one), Input()).backward();
             }),
             "segment a: forward saved 2 tensors and running it again only 1, so that number 1");
  calls = 0;
  EXPECT_HAS(ErrorOf([&] {
               Checkpoint({.name = "b", .early_stop = false}, ChangesItsMind(calls, one, two),
                          Input())
                   .backward();
             }),
             "segment b: running it again saves more tensors than the 1 of forward");
}

TEST(CheckpointErrors, ValuesAreComparedIfAsked) {
  const at::Tensor w = Weight();
  const auto drops = [&w](const at::Tensor& x) {
    return at::dropout(x.mm(w), 0.5, true).square().sum();
  };
  const CheckpointOptions without{
      .name = "mlp", .determinism = Determinism::kValues, .preserve_random_state = false};
  at::manual_seed(3);
  const at::Tensor y = Checkpoint(without, drops, Input());
  EXPECT_HAS(ErrorOf([&] { y.backward(); }), "has other values when it runs again than in forward");
  Checkpoint({.determinism = Determinism::kValues}, drops, Input()).backward();
  EXPECT_TRUE(w.grad().defined());
}

TEST(CheckpointErrors, UncheckedTakesWhatComes) {
  const at::Tensor w = Weight();
  int calls = 0;
  const auto layer = ChangesItsMind(
      calls, [&w](const at::Tensor& x) { return (x * w.sum()).exp(); },
      [&w](const at::Tensor& x) { return (x.t().contiguous().t() * w.sum()).exp(); });
  Checkpoint({.determinism = Determinism::kUnchecked}, layer, Input()).sum().backward();
  EXPECT_TRUE(w.grad().defined());
}

/// All that a thread has, to compare.
struct ThreadFacts {
  bool grad_mode = at::GradMode::is_enabled();
  bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  bool cache = at::autocast::is_autocast_cache_enabled();
  at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  std::shared_ptr<SavedTensorPolicy> policy = SavedTensorScope::Current();
  bool recomputing = IsRecomputing();
  bool operator==(const ThreadFacts&) const = default;
};

TEST(CheckpointErrors, AfterAnExceptionInForwardTheThreadIsAsBefore) {
  const ThreadFacts before;
  const at::Tensor random = [] {
    at::manual_seed(1);
    return at::rand({3});
  }();
  at::manual_seed(1);
  EXPECT_EQ(ErrorOf([] {
              Checkpoint(
                  [](const at::Tensor& x) -> at::Tensor {
                    const Autocast bf16(DType::kBFloat16);
                    if (x.defined()) throw std::runtime_error("no forward");
                    return x;
                  },
                  Input());
            }),
            "no forward");
  EXPECT_EQ(before, ThreadFacts());
  EXPECT_TRUE(at::equal(random, at::rand({3})));
}

TEST(CheckpointErrors, AfterAnExceptionInTheMiddleOfRecomputeBackwardCanBeRunAgain) {
  const at::Tensor w = Weight();
  const auto train = [&w](int throws_in_call) {
    w.mutable_grad() = at::Tensor();
    int calls = 0;
    const auto layer = [&w, &calls, throws_in_call](const at::Tensor& x) {
      const at::Tensor y = at::dropout(x.mm(w), 0.5, true).sin();
      const at::NoGradGuard no_grad;
      const Autocast bf16(DType::kBFloat16);
      if (++calls == throws_in_call) throw std::runtime_error("in the middle");
      const at::AutoGradMode grad(true);
      return y.exp() * 2;
    };
    at::manual_seed(9);
    at::Tensor x = Input();
    for (int i = 0; i < 3; ++i) {
      x = Checkpoint(layer, x);
    }
    const ThreadFacts before;
    const at::Tensor random = at::rand({2});
    if (throws_in_call > 0) {
      at::manual_seed(2);
      EXPECT_EQ(ErrorOf([&] { x.sum().backward({}, true); }), "in the middle");
      EXPECT_EQ(before, ThreadFacts());
      const at::Tensor drawn = at::rand({2});
      at::manual_seed(2);
      EXPECT_TRUE(at::equal(drawn, at::rand({2})));
      w.mutable_grad() = at::Tensor();
    }
    x.sum().backward();
    return w.grad().clone();
  };
  const at::Tensor expected = train(0);
  for (const int call : {4, 5, 6}) EXPECT_TRUE(at::equal(expected, train(call))) << call;
}

TEST(CheckpointErrors, AFunctionThatCatchesEverythingDoesNotHideAMismatchOrAStop) {
  const at::Tensor w = Weight();
  const auto careless = [&w](const at::Tensor& x) {
    at::Tensor y = x.mm(w).sin();
    try {
      y = y.exp();
    } catch (...) {
    }
    return y * 2;
  };
  Checkpoint(careless, Input()).sum().backward();
  const at::Tensor mine = w.grad();
  w.mutable_grad() = at::Tensor();
  careless(Input()).sum().backward();
  EXPECT_TRUE(at::equal(mine, w.grad()));

  int calls = 0;
  const auto hides = [&](const at::Tensor& x) {
    at::Tensor y = x.mm(w);
    try {
      y = (calls++ == 0 ? y : at::cat({y, y})).exp();
    } catch (...) {
    }
    return y.sum();
  };
  const at::Tensor y = Checkpoint({.name = "hides"}, hides, Input());
  EXPECT_HAS(ErrorOf([&] { y.backward(); }), "segment hides: saved tensor 1 of 2 was");
}

TEST(CheckpointErrors, BackwardTwiceWithoutRetainIsRefusedAsByLibtorch) {
  const at::Tensor w = Weight();
  const at::Tensor y =
      Checkpoint([&w](const at::Tensor& x) { return x.mm(w).exp().sum(); }, Input());
  y.backward();
  EXPECT_HAS(ErrorOf([&] { y.backward(); }), "second time");
}

}  // namespace
}  // namespace ait
