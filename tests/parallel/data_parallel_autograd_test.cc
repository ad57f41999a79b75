// SPDX-License-Identifier: Apache-2.0
// DataParallel and what autograd and user code do to parameters and their gradients.
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <mutex>

#include "ait/memory/resource.h"
#include "ait/optim/sgd.h"
#include "ait/parallel/data_parallel.h"
#include "parallel/engine_support.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

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
using ::testing::HasSubstr;

TEST(DataParallelGradients, AreViewsThatSurviveSetToNoneAtAnyTime) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const float rank = static_cast<float>(communicator->rank().value());
    const at::Tensor a = Leaf({3, 5}, 1);
    const at::Tensor b = Leaf({7}, 2);
    auto engine = Engine(communicator, List({{"a", a}, {"b", b}}));
    const at::Tensor view_a = a.grad();
    const auto loss = [&] { return a.sum().mul(1 + rank).add(b.sum()); };

    a.mutable_grad().reset();  // before the micro-step
    EXPECT_OK(Reduce(*engine, loss()));
    EXPECT_TRUE(a.grad().is_same(view_a));
    EXPECT_EQ(First(a.grad()), 3);
    EXPECT_OK(engine->Discard());

    EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
    EXPECT_OK(engine->Backward(loss()));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    a.mutable_grad().reset();  // within one: what was accumulated is gone, as the user wished
    EXPECT_OK(engine->Backward(loss()));
    EXPECT_OK(engine->FinishGradients({}));
    EXPECT_TRUE(a.grad().is_same(view_a));
    EXPECT_EQ(First(a.grad()), 3);
    EXPECT_EQ(First(b.grad()), 4);
    EXPECT_OK(engine->Discard());

    EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
    EXPECT_OK(engine->Backward(loss()));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    a.mutable_grad().reset();  // and then not used
    EXPECT_OK(engine->Backward(b.sum()));
    EXPECT_OK(engine->FinishGradients({}));
    EXPECT_TRUE(a.grad().is_same(view_a));
    EXPECT_EQ(First(a.grad()), 0);
    EXPECT_OK(engine->Discard());

    a.mutable_grad() = Values({3, 5}, 1).fill_(10);  // the user's own gradient counts
    EXPECT_OK(Reduce(*engine, loss()));
    EXPECT_TRUE(a.grad().is_same(view_a));
    EXPECT_EQ(First(a.grad()), 23);
  });
}

TEST(DataParallelGradients, AddUpOverMicroStepsThatUseDifferentParameters) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank().value();
    std::vector<at::Tensor> p;
    NamedTensors list;
    for (int i = 0; i < 6; ++i) {
      p.push_back(Leaf({4}, i));
      list.Add(StrCat("p", i), p.back());
    }
    auto engine = Engine(communicator, list, {.first_bucket = Bytes(1), .bucket_cap = Bytes(600)});
    for (int step = 0; step < 12; ++step) {
      const auto used = [&](int r, int micro, int i) {
        return (step * 7 + r * 5 + micro * 3 + i) % 3 == 0;
      };
      for (int micro = 0; micro < 3; ++micro) {
        EXPECT_OK(engine->BeginMicroStep(micro == 2 ? MicroStep::kLast : MicroStep::kAccumulate));
        at::Tensor loss = Leaf({}, 9);
        for (int i = 0; i < 6; ++i) {
          if (used(rank, micro, i))
            loss = loss.add(p[static_cast<std::size_t>(i)].sum().mul(1 + micro));
        }
        EXPECT_OK(engine->Backward(loss));
      }
      EXPECT_OK(engine->FinishGradients({}));
      for (int i = 0; i < 6; ++i) {
        float expected = 0;
        for (int r = 0; r < 3; ++r) {
          for (int micro = 0; micro < 3; ++micro) {
            if (used(r, micro, i)) expected += static_cast<float>(1 + micro);
          }
        }
        EXPECT_EQ(First(p[static_cast<std::size_t>(i)].grad()), expected) << step << " " << i;
      }
      EXPECT_EQ(engine->counters().collectives, 3 + 1);  // whatever was used
      EXPECT_OK(engine->Discard());
    }
  });
}

TEST(DataParallelGradients, OfARankWithoutDataAreZero) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({4}, 1);
    auto engine = Engine(communicator, List({{"a", a}}));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    if (communicator->rank() == Rank(0)) {
      EXPECT_OK(engine->Backward(a.sum()));
    }
    ASSERT_OK_AND_ASSIGN(const GradientSummary sum,
                         engine->FinishGradients({.count = 1 - communicator->rank().value()}));
    EXPECT_EQ(sum.count, 1);
    EXPECT_EQ(First(a.grad()), 1);
    EXPECT_EQ(engine->counters().unused_parameters, communicator->rank().value());
  });
}

TEST(DataParallelGradients, OfTensorsOverTheSameMemoryAreSummed) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({4, 2}, 1);
    const at::Tensor b = a.detach().set_requires_grad(true);  // another tensor, the same memory
    const at::Tensor c = Leaf({2}, 3);
    auto engine = Engine(communicator, List({{"a", a}, {"c", c}, {"b", b}, {"again", a}}),
                         {.first_bucket = Bytes(1), .bucket_cap = Bytes(1)});
    EXPECT_EQ(engine->layout().parameters()[2].tied_to, 0);
    EXPECT_EQ(engine->layout().parameters()[3].tied_to, 0);
    EXPECT_EQ(a.data_ptr(), b.data_ptr());
    EXPECT_OK(Reduce(*engine, a.sum().add(b.sum().mul(10)).add(c.sum())));
    EXPECT_EQ(First(a.grad()), 22);
    EXPECT_EQ(First(b.grad()), 22);
    EXPECT_OK(engine->Discard());
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    a.mutable_grad().reset();
    b.mutable_grad().reset();
    EXPECT_OK(engine->Backward(a.sum().add(b.sum().mul(10))));
    EXPECT_OK(engine->FinishGradients({}));
    EXPECT_EQ(First(a.grad()), 22);
  });
}

TEST(DataParallelGradients, AreReducedAtBucketBoundariesAndForEveryDtype) {
  constexpr std::int64_t kCap = 512;  // elements of fp32
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    NamedTensors list;
    int i = 0;
    for (const std::int64_t size : {kCap - 1, kCap, kCap + 1, 3 * kCap, std::int64_t{0}}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
        const at::Tensor p = Values({size}, ++i).to(type).set_requires_grad(true);
        list.Add(StrCat("p", i), p);
      }
    }
    list.Add("scalar", Leaf({}, 50));
    auto engine = Engine(communicator, list,
                         {.first_bucket = Bytes(4 * kCap), .bucket_cap = Bytes(4 * kCap)});
    EXPECT_EQ(engine->layout().groups().size(), 4u);
    at::Tensor loss = Leaf({}, 60);
    double squares = 0;
    for (std::size_t p = 0; p < list.size(); ++p) {
      const double factor = static_cast<double>(p % 4 + 1) * (communicator->rank().value() + 1);
      loss = loss.add(list.tensor(p).to(at::kFloat).sum().mul(factor));
      squares += std::pow(static_cast<double>(p % 4 + 1) * 6, 2) *
                 static_cast<double>(list.tensor(p).numel());
    }
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_OK(engine->Backward(loss));
    ASSERT_OK_AND_ASSIGN(const GradientSummary sum, engine->FinishGradients({.count = 1}));
    EXPECT_DOUBLE_EQ(sum.norm, std::sqrt(squares) / 3);
    for (std::size_t p = 0; p < list.size(); ++p) {
      const at::Tensor gradient = list.tensor(p).grad();
      EXPECT_TRUE(gradient.eq(static_cast<double>(p % 4 + 1) * 6).all().item<bool>()) << p;
    }
    EXPECT_THAT(engine->SetOptimizer(Sgd{}),
                StatusIs(StatusCode::kUnimplemented,
                         HasSubstr("the optimizers update float32, bfloat16 and float16")));
  });
}

TEST(DataParallelGradients, HaveTheStridesOfTheirParameters) {
  const at::Tensor transposed = Values({3, 5}, 1).t().set_requires_grad(true);
  const at::Tensor gaps = Values({4, 6}, 2).narrow(1, 0, 3).detach().set_requires_grad(true);
  const at::Tensor values = gaps.detach().clone();
  auto engine = Engine(Alone(), List({{"transposed", transposed}, {"gaps", gaps}}));
  EXPECT_EQ(transposed.strides(), at::IntArrayRef({1, 5}));
  EXPECT_EQ(gaps.strides(), at::IntArrayRef({3, 1}));
  EXPECT_TRUE(gaps.equal(values));
  EXPECT_TRUE(transposed.equal(Values({3, 5}, 1).t()));
  EXPECT_OK(Reduce(*engine, transposed.pow(2).sum().add(gaps.pow(2).sum())));
  EXPECT_EQ(transposed.grad().strides(), transposed.strides());
  EXPECT_TRUE(transposed.grad().equal(transposed.detach().mul(2)));
  EXPECT_TRUE(gaps.grad().equal(gaps.detach().mul(2)));
}

TEST(DataParallelGradients, MayBeSparse) {
  const at::Tensor table = Leaf({17, 3}, 1);
  auto engine = Engine(Alone(), List({{"table", table}}));
  const at::Tensor view = table.grad();
  const at::Tensor tokens = Tokens(9, 1);
  for (const bool reset : {false, true}) {
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    if (reset) table.mutable_grad().reset();
    EXPECT_OK(engine->Backward(at::embedding(table, tokens, -1, false, /*sparse=*/true).sum()));
    EXPECT_OK(engine->FinishGradients({}));
    EXPECT_TRUE(table.grad().is_same(view));
    EXPECT_EQ(view.sum().item<float>(), 27);
    EXPECT_OK(engine->Discard());
  }
}

TEST(DataParallelGradients, MayComeFromTheUsersOwnBackward) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({4}, 1);
    auto engine = Engine(communicator, List({{"a", a}}));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
    torch::autograd::backward({a.sum()}, {});
    torch::autograd::backward({a.sum()}, {});
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    torch::autograd::backward({a.sum()}, {});
    EXPECT_OK(engine->FinishGradients({}));
    EXPECT_EQ(First(a.grad()), 6);
    EXPECT_GT(engine->counters().backward, Duration::zero());
  });
}

TEST(DataParallel, RefusesDoubleBackward) {
  const at::Tensor a = Leaf({4}, 1);
  auto engine = Engine(Alone(), List({{"a", a}}));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  torch::autograd::backward({a.pow(3).sum()}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  EXPECT_THAT(engine->FinishGradients({}),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("double backward is not supported: the gradient of parameter a")));
  EXPECT_THAT(
      engine->BeginMicroStep(MicroStep::kLast),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("the data-parallel engine has ended")));
}

TEST(DataParallel, RefusesASecondBackwardInTheLastMicroStep) {
  const at::Tensor a = Leaf({4}, 1);
  auto engine = Engine(Alone(), List({{"a", a}}));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  torch::autograd::backward({a.sum()}, {});
  torch::autograd::backward({a.sum()}, {});
  EXPECT_THAT(engine->FinishGradients({}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("parameter a got a second gradient in the last micro-step")));
}

TEST(DataParallel, RefusesBackwardOutsideOfAMicroStep) {
  const at::Tensor a = Leaf({4}, 1);
  auto engine = Engine(Alone(), List({{"a", a}}));
  torch::autograd::backward({a.sum()}, {});
  const auto refused = [] {
    return StatusIs(StatusCode::kFailedPrecondition,
                    HasSubstr("backward reached parameter a outside of a micro-step"));
  };
  EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast), refused());
  EXPECT_OK(engine->status());  // told once, and nothing has ended
  EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 1}}));
  const at::Tensor before = a.detach().clone();
  EXPECT_OK(Reduce(*engine, a.sum()));
  torch::autograd::backward({a.sum()}, {});  // such as a penalty that was forgotten
  EXPECT_THAT(engine->Update({}), refused());
  EXPECT_OK(engine->Update({}));
  EXPECT_TRUE(a.equal(before.sub(1)));
  torch::autograd::backward({a.sum()}, {});
  EXPECT_THAT(engine->Discard(), refused());
  EXPECT_OK(engine->Discard());
  EXPECT_OK(Reduce(*engine, a.sum()));
  EXPECT_EQ(First(a.grad()), 1);
}

TEST(DataParallel, RefusesASecondBackwardThatReachesParametersInReduction) {
  const at::Tensor a = Leaf({4}, 1);
  const at::Tensor b = Leaf({4}, 2);
  auto engine = Engine(Alone(), List({{"a", a}, {"b", b}}));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  EXPECT_OK(engine->Backward(a.sum()));
  torch::autograd::backward({b.sum()}, {});
  EXPECT_EQ(First(b.grad()), 0);  // not written to
  EXPECT_THAT(engine->FinishGradients({}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("backward reached parameter b when bucket 0 (b, a) was being "
                                 "reduced")));
  EXPECT_FALSE(engine->status().ok());
}

TEST(DataParallel, EndsInDiscardAfterABackwardThatWentWrong) {
  const at::Tensor a = Leaf({4}, 1);
  auto engine = Engine(Alone(), List({{"a", a}}));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));
  torch::autograd::backward({a.pow(3).sum()}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  EXPECT_THAT(engine->Discard(),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("double backward")));
  EXPECT_FALSE(engine->status().ok());
}

// Runs a backward of its own within backward, as a re-computation of activations does.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& parameter) {
    context->save_for_backward({input});
    context->saved_data["parameter"] = parameter;
    return input.mul(parameter.detach());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const c10::AutoGradMode enabled(true);
    const at::Tensor input = context->get_saved_variables()[0].detach().set_requires_grad(true);
    const at::Tensor parameter = context->saved_data["parameter"].toTensor();
    torch::autograd::backward({input.mul(parameter)}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

TEST(DataParallel, NamesReentrantBackwardAndTakesItInAnAccumulatingMicroStep) {
  const at::Tensor a = Leaf({4}, 1);
  const auto loss = [&](const at::Tensor& input) {
    return Reentrant::apply(Reentrant::apply(input, a), a).sum();
  };
  const at::Tensor input = at::ones({4}).set_requires_grad(true);
  {
    auto engine = Engine(Alone(), List({{"a", a}}));
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    EXPECT_THAT(engine->Backward(loss(input)),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("reentrant backward), and several of them use the parameter")));
  }
  auto engine = Engine(Alone(), List({{"a", a}}));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kAccumulate));  // as the message says
  EXPECT_OK(engine->Backward(loss(input)));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  EXPECT_OK(engine->FinishGradients({}));
  EXPECT_TRUE(a.grad().equal(a.detach().add(a.detach())));
}

TEST(DataParallelGradients, MayBeReplacedBeforeTheUpdate) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({2, 2}, 1);
    const at::Tensor b = Leaf({3}, 2);
    auto engine = Engine(communicator, List({{"a", a}, {"b", b}}));
    EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 1}}));
    const at::Tensor view = a.grad();
    const auto loss = [&] { return a.mul(at::arange(4).view({2, 2})).sum().add(b.sum()); };
    at::Tensor before = a.detach().clone();
    const at::Tensor b_before = b.detach().clone();
    EXPECT_OK(Reduce(*engine, loss()));  // of a: 0, 2, 4, 6
    a.mutable_grad() = a.grad().clamp_max(3);
    b.mutable_grad().reset();
    EXPECT_OK(engine->Update({}));
    EXPECT_TRUE(a.equal(before.sub(at::arange(4).mul(2).clamp_max(3).view({2, 2}))));
    EXPECT_TRUE(b.equal(b_before));  // none counts as zero
    EXPECT_TRUE(a.grad().is_same(view));

    before = a.detach().clone();
    EXPECT_OK(Reduce(*engine, loss()));  // and nothing is left of it in the next step
    EXPECT_TRUE(a.grad().equal(at::arange(4).mul(2).to(at::kFloat).view({2, 2})));
    a.mutable_grad() = a.grad().t();  // looks into the buffer itself
    EXPECT_OK(engine->Update({}));
    EXPECT_TRUE(a.equal(before.sub(at::arange(4).mul(2).view({2, 2}).t())));

    EXPECT_OK(Reduce(*engine, loss()));
    a.mutable_grad() = at::ones({2, 2});
    EXPECT_OK(engine->Discard());
    EXPECT_TRUE(a.grad().is_same(view));
    EXPECT_OK(Reduce(*engine, loss()));
    EXPECT_EQ(a.grad()[1][1].item<float>(), 6);
  });
}

TEST(DataParallelGradients, MayNotBeReplacedWhileTheyAreReduced) {
  const at::Tensor a = Leaf({4}, 1);
  auto engine = Engine(Alone(), List({{"a", a}}));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  EXPECT_OK(engine->Backward(a.sum()));
  a.mutable_grad().reset();  // of no consequence: it is the sum already
  EXPECT_OK(engine->FinishGradients({}));
  EXPECT_EQ(First(a.grad()), 1);
  EXPECT_OK(engine->Discard());
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  EXPECT_OK(engine->Backward(a.sum()));
  a.mutable_grad() = at::ones({4});
  EXPECT_THAT(
      engine->FinishGradients({}),
      StatusIs(StatusCode::kFailedPrecondition,
               HasSubstr("the gradient of parameter a was replaced while it was being reduced")));
}

TEST(DataParallelGradients, OfAnotherShapeEndTheEngineAndAreNamed) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({4}, 1);
    auto engine = Engine(communicator, List({{"a", a}}));
    if (communicator->rank() == Rank(1)) {
      a.mutable_grad() = at::ones({1});  // would be taken for four elements
      EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast),
                  StatusIs(StatusCode::kInvalidArgument,
                           HasSubstr("the gradient that was given to parameter a has the shape "
                                     "[1], but the parameter has [4]")));
      EXPECT_FALSE(engine->status().ok());
      engine.reset();  // does not mind it
      return;
    }
    const Status status = Reduce(*engine, a.sum());
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr("given to parameter a"));
  });
}

}  // namespace
}  // namespace ait
