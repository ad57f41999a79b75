// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Keep the order.
#include "parallel/unit_store_internal.h"
// clang-format off
#include <ATen/SequenceNumber.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
// clang-format on

#include "ait/parallel/parameter_unit.h"
#include "parallel/engine_support.h"
#include "parallel/out_of_reach.h"
#include "parallel/parameter_store_internal.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"
#include "tensor/catch.h"

namespace ait::internal {
namespace {

using ::ait::testing::Leaf;
using ::ait::testing::OutOfReach;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::Values;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Three blocks of two matrices, the second of which is frozen.
struct Blocks {
  std::vector<at::Tensor> up, down;
  NamedTensors parameters;

  explicit Blocks(int seed) {
    for (int i = 0; i < 3; ++i) {
      up.push_back(Leaf({5, 3}, seed + i));
      down.push_back(Values({3, 5}, seed + 10 + i));
      parameters.Add(StrCat("blocks.", i, ".up"), up.back());
      parameters.Add(StrCat("blocks.", i, ".down"), down.back());
    }
  }
  at::Tensor Forward(int i, const at::Tensor& x) const {
    return at::linear(at::tanh(at::linear(x, up[static_cast<std::size_t>(i)])),
                      down[static_cast<std::size_t>(i)]);
  }
};

StatusOr<FlatLayout> LayoutOf(const NamedTensors& parameters, int ranks) {
  AIT_ASSIGN_OR_RETURN(std::vector<ParameterInfo> infos, InspectParameters(parameters));
  AIT_RETURN_IF_ERROR(AssignUnits(UnitsUnder("blocks", parameters), 0, infos));
  return FlatLayout::Create(std::move(infos), {.world_size = WorldSize(ranks)});
}

// Calls unit i of the blocks.
at::Tensor Call(UnitStore& store, int unit, const std::function<at::Tensor()>& function) {
  EXPECT_OK(store.Enter(unit));
  const std::uint64_t first = at::sequence_number::peek();
  const at::Tensor result = function();
  store.Watch(unit, {&result, 1}, first);
  store.Leave(unit);
  return result;
}

enum class Reach { kDirect, kCollective };

void WithStore(int ranks, int prefetch, const std::function<void(UnitStore&, Blocks&)>& test,
               Reach reach = Reach::kDirect) {
  RunRanks(ranks, [&](std::shared_ptr<Communicator> communicator) {
    if (reach == Reach::kCollective) communicator = OutOfReach(communicator);
    Blocks blocks(1 + 100 * communicator->rank().value());
    const auto layout = LayoutOf(blocks.parameters, ranks);
    ASSERT_OK(layout);
    const auto agree = [&](const Buffer& bytes, std::string label) {
      return communicator->Broadcast(bytes, Rank(0), {.label = std::move(label)}).Wait();
    };
    auto store =
        UnitStore::Create(communicator, blocks.parameters, *layout,
                          {"blocks.0", "blocks.1", "blocks.2"}, agree, {.prefetch = prefetch});
    ASSERT_OK(store);
    ASSERT_EQ((*store)->shards().is_direct(), reach == Reach::kDirect);
    ASSERT_OK(communicator->Barrier().Wait());
    test(**store, blocks);
    ASSERT_OK(communicator->Barrier().Wait());
  });
}

TEST(UnitStoreTest, ForwardAndBackwardSeeWhatWholeParametersGive) {
  for (const int ranks : {1, 2, 3}) {
    WithStore(ranks, 1, [](UnitStore& store, Blocks& blocks) {
      const Blocks expected(1);  // of rank 0
      for (int step = 0; step < 3; ++step) {
        store.BeginMicroStep();
        at::Tensor x = Values({4, 3}, 50 + step).set_requires_grad(step == 1);
        at::Tensor y = x;
        for (int i = 0; i < 3; ++i) y = Call(store, i, [&] { return blocks.Forward(i, y); });
        at::Tensor x2 = x.detach().clone().set_requires_grad(step == 1);
        at::Tensor y2 = x2;
        for (int i = 0; i < 3; ++i) y2 = expected.Forward(i, y2);
        EXPECT_TRUE(y.equal(y2));
        y.sum().backward();
        y2.sum().backward();
        for (int i = 0; i < 3; ++i) {
          EXPECT_FALSE(store.in_use(i));
          const auto n = static_cast<std::size_t>(i);
          EXPECT_TRUE(blocks.up[n].grad().equal(expected.up[n].grad()));
        }
        if (step == 1) {
          EXPECT_TRUE(x.grad().equal(x2.grad()));
        }
        EXPECT_EQ(store.schedule().surprises(), 0);
        EXPECT_THAT(store.schedule().used(), ElementsAre(0, 1, 2, 2, 1, 0));
      }
      const GatherCounters counters = store.shards().TakeCounters();
      EXPECT_EQ(counters.gathers, 3 * 5 - 2)
          << "the last unit of forward, and of backward, stays for what follows";
    });
  }
}

TEST(UnitStoreTest, WithoutReachUnitsAreGatheredByCollectives) {
  for (const int prefetch : {0, 1, 2}) {
    const auto test = [](UnitStore& store, Blocks& blocks) {
      const Blocks expected(1);
      for (int step = 0; step < 3; ++step) {
        store.BeginMicroStep();
        at::Tensor y = Values({4, 3}, 50 + step);
        at::Tensor y2 = y;
        for (int i = 0; i < 3; ++i) {
          y = Call(store, i, [&] { return blocks.Forward(i, y); });
          y2 = expected.Forward(i, y2);
        }
        y.sum().backward();
        y2.sum().backward();
        for (const std::size_t i : {0, 1, 2}) {
          EXPECT_TRUE(blocks.up[i].grad().equal(expected.up[i].grad()));
        }
        ASSERT_OK(store.Settle());
      }
    };
    WithStore(3, prefetch, test, Reach::kCollective);
  }
}

TEST(UnitStoreTest, AnotherOrderOfCollectivesIsNamedOnEveryRank) {
  const auto test = [](UnitStore& store, Blocks&) {
    const int rank = store.shards().communicator().rank().value();
    for (const int unit : {0, rank == 1 ? 2 : 1, rank == 1 ? 1 : 2}) {
      ASSERT_OK(store.Enter(unit));
      store.Leave(unit);
    }
    EXPECT_THAT(store.Settle(),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("gather 2 of the step was unit blocks.1 on rank 0, and blocks.2 "
                                   "on rank 1")));
  };
  WithStore(3, 0, test, Reach::kCollective);
}

TEST(UnitStoreTest, AParameterOutsideOfItsUnitIsAClearError) {
  WithStore(2, 0, [](UnitStore& store, Blocks& blocks) {
    const auto away = StatusIs(StatusCode::kUnknown,
                               HasSubstr("the parameters of unit blocks.1 are not gathered"));
    const at::Tensor x = Values({4, 3}, 50);
    EXPECT_THAT(CatchAsStatus([&] { return blocks.Forward(1, x); }), away);
    at::Tensor hidden;
    Call(store, 1, [&] {
      hidden = blocks.Forward(1, x);
      return x;
    });
    EXPECT_THAT(CatchAsStatus([&] { hidden.sum().backward(); }), away)
        << "a result that is not returned is not watched";
    EXPECT_THAT(CatchAsStatus([&] { return blocks.up[1].sum(); }), away);
    EXPECT_OK(store.CheckUnchanged());
    blocks.up[1].set_data(Values({5, 3}, 1));
    EXPECT_THAT(store.CheckUnchanged(), StatusIs(StatusCode::kFailedPrecondition,
                                                 HasSubstr("parameter blocks.1.up of unit")));
  });
}

TEST(UnitStoreTest, ABackwardOverAPartOfTheGraphLeavesNothingInUse) {
  WithStore(2, 1, [](UnitStore& store, Blocks& blocks) {
    store.BeginMicroStep();
    const at::Tensor x = Values({4, 3}, 50).set_requires_grad(true);
    const at::Tensor y = Call(store, 0, [&] { return blocks.Forward(0, x); });
    const at::Tensor z = Call(store, 1, [&] { return blocks.Forward(1, y); });
    const auto gradients = torch::autograd::grad({z.sum()}, {y}, {}, /*retain_graph=*/true);
    EXPECT_FALSE(store.in_use(0));
    EXPECT_FALSE(store.in_use(1));
    z.sum().backward();  // again, over all
    EXPECT_FALSE(store.in_use(0));
    EXPECT_FALSE(store.in_use(1));
    EXPECT_TRUE(blocks.up[0].grad().defined());
  });
}

TEST(UnitStoreTest, NestedAndRepeatedCallsAreFine) {
  WithStore(2, 1, [](UnitStore& store, Blocks& blocks) {
    const Blocks expected(1);
    const at::Tensor x = Values({4, 3}, 50);
    const auto through = [&](const Blocks& of, auto&& call) {
      return call(0, [&] {
        const at::Tensor y = of.Forward(0, call(1, [&] { return of.Forward(1, x); }));
        return of.Forward(0, call(0, [&] { return of.Forward(0, y); }));
      });
    };
    for (int step = 0; step < 2; ++step) {
      store.BeginMicroStep();
      through(blocks,
              [&](int unit, const std::function<at::Tensor()>& f) { return Call(store, unit, f); })
          .sum()
          .backward();
      through(expected, [&](int, const std::function<at::Tensor()>& f) { return f(); })
          .sum()
          .backward();
      for (const std::size_t i : {0, 1}) {
        EXPECT_FALSE(store.in_use(static_cast<int>(i)));
        EXPECT_TRUE(blocks.up[i].grad().equal(expected.up[i].grad()));
      }
    }
  });
}

TEST(UnitStoreTest, AnExceptionInBackwardIsCleanedUpBySettle) {
  WithStore(2, 1, [](UnitStore& store, Blocks& blocks) {
    store.BeginMicroStep();
    const at::Tensor x = Values({4, 3}, 50);
    const at::Tensor y = Call(store, 0, [&] {
      const at::Tensor hidden = blocks.Forward(0, x);
      hidden.register_hook([](const at::Tensor& gradient) -> at::Tensor {
        if (gradient.defined()) throw std::runtime_error("on purpose");
        return gradient;
      });
      return at::tanh(hidden);
    });
    EXPECT_THAT(CatchAsStatus([&] { y.sum().backward({}, /*retain_graph=*/true); }),
                StatusIs(StatusCode::kUnknown, HasSubstr("on purpose")));
    EXPECT_OK(store.Settle());
    EXPECT_FALSE(store.in_use(0));
    EXPECT_THAT(CatchAsStatus([&] { y.sum().backward(); }), Not(ait::testing::IsOk()))
        << "the same again, in a new use";
    EXPECT_OK(store.Settle());
    EXPECT_FALSE(store.in_use(0));
  });
}

TEST(UnitStoreTest, WhatIsStoredIsGatheredByAll) {
  WithStore(3, 1, [](UnitStore& store, Blocks& blocks) {
    ASSERT_OK(store.Enter(2));
    {
      const c10::NoGradGuard no_grad;
      blocks.up[2].fill_(7);
    }
    ASSERT_OK(store.shards().communicator().Barrier().Wait());
    store.Store(2);
    store.Leave(2);
    EXPECT_OK(store.Settle());
    ASSERT_OK(store.shards().communicator().Barrier().Wait());
    const at::Tensor sum = Call(store, 2, [&] { return blocks.up[2].sum(); });
    EXPECT_EQ(sum.item<float>(), 7 * 15);
  });
}

TEST(UnitStoreTest, GraphsOutliveTheStore) {
  at::Tensor loss;
  Blocks blocks(1);
  RunRanks(1, [&](const std::shared_ptr<Communicator>& communicator) {
    const auto layout = LayoutOf(blocks.parameters, 1);
    ASSERT_OK(layout);
    auto store = UnitStore::Create(communicator, blocks.parameters, *layout,
                                   {"blocks.0", "blocks.1", "blocks.2"}, nullptr, {});
    ASSERT_OK(store);
    loss = Call(**store, 0, [&] { return blocks.Forward(0, Values({4, 3}, 50)); }).sum();
  });
  EXPECT_THAT(CatchAsStatus([&] { loss.backward(); }),
              StatusIs(StatusCode::kUnknown, HasSubstr("the data-parallel engine that kept")));
}

}  // namespace
}  // namespace ait::internal
