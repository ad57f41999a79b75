// SPDX-License-Identifier: Apache-2.0
// What DataParallel refuses, and how it ends: parameters it cannot hold, exceptions, memory, peers that stay away.
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

TEST(DataParallel, EndsOnAnExceptionOutsideOfBackward) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({4}, 1);
    auto engine = Engine(communicator, List({{"a", a}}));
    if (communicator->rank() == Rank(1)) {
      a.mutable_grad() = at::ones({4}, at::TensorOptions(at::kMeta));  // cannot be copied
      const Status status = engine->BeginMicroStep(MicroStep::kLast);
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(Message(status), HasSubstr("rank 1, step 0, BeginMicroStep"));
      EXPECT_EQ(engine->status(), status);
      engine.reset();  // and neither does the destructor end the process
      return;
    }
    const Status status = Reduce(*engine, a.sum());
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr("rank 1, step 0, BeginMicroStep"));
  });
}

TEST(DataParallel, RefusesParametersOfAnotherEngine) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({4}, 1);
    const at::Tensor b = Leaf({4}, 2);
    const at::Tensor c = Leaf({4}, 3);
    auto engine = Engine(communicator, List({{"a", a}, {"b", b}}));
    EXPECT_THAT(
        DataParallel::Create(communicator, List({{"c", c}, {"b", b}})),
        StatusIs(StatusCode::kFailedPrecondition,
                 HasSubstr("parameter b belongs to another data-parallel engine; destroy that")));
    EXPECT_OK(Reduce(*engine, a.sum().add(b.sum())));  // which has not suffered
    EXPECT_EQ(First(b.grad()), 2);
    const at::Tensor graph = b.sum();  // keeps the old hook
    engine.reset();
    engine = Engine(communicator, List({{"c", c}, {"b", b}}));
    EXPECT_OK(Reduce(*engine, b.sum().add(c.sum())));
    EXPECT_EQ(First(b.grad()), 2);
  });
}

TEST(DataParallel, NoticesParametersThatWereFrozenUnfrozenOrMoved) {
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kFailedPrecondition, HasSubstr(text));
  };
  TinyModel model;
  auto engine = Engine(Alone(), model.Parameters());
  model.up.set_requires_grad(false);
  EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast), refused("parameter up.weight was frozen"));
  model.up.set_requires_grad(true);
  model.frozen.set_requires_grad(true);
  EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast),
              refused("parameter frozen.weight was frozen when the engine was made"));
  model.frozen.set_requires_grad(false);
  EXPECT_OK(engine->SetOptimizer(Sgd{}));
  EXPECT_OK(Reduce(*engine, model.Loss(Tokens(4, 1), Tokens(4, 2))));
  model.down.set_data(model.down.detach().clone());  // what Module::to does
  EXPECT_THAT(engine->Update({}), refused("parameter down.weight was moved"));
  EXPECT_OK(engine->Discard());
  EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast), refused("parameter down.weight was moved"));
  EXPECT_OK(engine->status());
}

TEST(DataParallel, RefusesParametersItCannotHold) {
  const auto create = [](const NamedTensors& list) {
    return DataParallel::Create(Alone(), list).status();
  };
  const at::Tensor a = Leaf({4}, 1);
  const auto invalid = [](const char* text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(create(List({{"a", at::Tensor()}})), invalid("parameter a is undefined"));
  EXPECT_THAT(create(List({{"a", a.mul(2)}})),
              invalid("parameter a is the result of a computation"));
  EXPECT_THAT(create(List({{"a", a.detach().to_sparse()}})), invalid("parameter a is sparse"));
  EXPECT_THAT(create(List({{"a", a.detach().to(at::kComplexFloat)}})), invalid("parameter a"));
  EXPECT_THAT(create(List({{"a", a}, {"b", a.detach().narrow(0, 1, 2).set_requires_grad(true)}})),
              invalid("parameters a and b overlap in memory"));
  EXPECT_THAT(create(List({{"a", a}, {"b", a.detach()}})), invalid("they are not alike"));
  DataParallelOptions options;
  options.buffers.Add("buffer", a.detach().narrow(0, 0, 2));
  EXPECT_THAT(DataParallel::Create(Alone(), List({{"a", a}}), options),
              invalid("buffer buffer shares memory with parameter a"));
}

TEST(DataParallel, TurnsAnExceptionInBackwardIntoAStatusOnEveryRank) {
  RunRanks(3, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({4}, 1);
    const at::Tensor b = Leaf({4}, 2);
    auto engine = Engine(communicator, List({{"a", a}, {"b", b}}),
                         {.first_bucket = Bytes(1), .bucket_cap = Bytes(1)});
    const at::Tensor loss = a.mul(b).sum();
    if (communicator->rank() == Rank(1)) {
      a.register_hook([](const at::Tensor& gradient) -> at::Tensor {
        (void)gradient;
        throw std::runtime_error("the user's own trouble");
      });
    }
    EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
    Status status = engine->Backward(loss);
    if (status.ok()) status = engine->FinishGradients({}).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr("the user's own trouble"));
    EXPECT_THAT(Message(status), HasSubstr("rank 1, step 1, backward"));
    EXPECT_EQ(engine->status(), status);
    EXPECT_THAT(engine->BeginMicroStep(MicroStep::kLast),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("the user's own trouble")));
  });
}

TEST(DataParallel, NamesBucketRankAndPhaseWhenAPeerDoesNotCome) {
  RunRanks(
      2,
      [](std::shared_ptr<Communicator> communicator) {
        const at::Tensor a = Leaf({4}, 1);
        const at::Tensor b = Leaf({4}, 2);
        auto engine = Engine(communicator, List({{"a", a}, {"b", b}}),
                             {.first_bucket = Bytes(1), .bucket_cap = Bytes(1)});
        if (communicator->rank() == Rank(1)) return;  // leaves after Create
        const Time begin = SystemClock().now();
        EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
        EXPECT_OK(engine->Backward(a.mul(b).sum()));
        const Status status = engine->FinishGradients({}).status();
        EXPECT_FALSE(status.ok());
        EXPECT_THAT(Message(status), HasSubstr("rank 0, step 1, waiting for gradients"));
        EXPECT_THAT(Message(status), HasSubstr("bucket 0 (b)"));
        EXPECT_THAT(Message(status), HasSubstr("rank 1"));
        ASSERT_EQ(engine->counters().buckets.size(), 2u);
        for (const BucketCounters& bucket : engine->counters().buckets) {  // the second never began
          EXPECT_GE(bucket.communication, Duration::zero());
          EXPECT_LE(bucket.communication, SystemClock().now() - begin);
        }
      },
      std::chrono::seconds(2));
}

TEST(DataParallel, LeavesAWorkingModelBehind) {
  const at::Tensor a = Leaf({4}, 1);
  const at::Tensor loss = a.sum();
  auto engine = Engine(Alone(), List({{"a", a}}));
  engine.reset();
  torch::autograd::backward({loss}, {});  // of a graph that still has the hook
  EXPECT_EQ(First(a.grad()), 1);
  engine = Engine(Alone(), List({{"a", a}}));  // gradients start at zero
  EXPECT_OK(Reduce(*engine, a.sum()));
  EXPECT_EQ(First(a.grad()), 1);
}

TEST(DataParallel, DoesNotLetAGraphOutliveTheParametersItSaw) {
  const at::Tensor a = Leaf({4}, 1);
  auto engine = Engine(Alone(), List({{"a", a}}));
  EXPECT_OK(engine->SetOptimizer(Sgd{{.learning_rate = 0.1}}));
  const at::Tensor old_loss = a.pow(2).sum();
  EXPECT_OK(Reduce(*engine, a.sum()));
  EXPECT_OK(engine->Update({}));
  EXPECT_OK(engine->BeginMicroStep(MicroStep::kLast));
  const Status status = engine->Backward(old_loss);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr("modified by an inplace operation"));
}

// Counts what it gives out, up to a limit.
class Limited final : public MemoryResource {
 public:
  explicit Limited(std::size_t limit) : left_(limit) {}
  MemoryProperties properties() const override { return {.name = "limited"}; }
  std::size_t left() const { return left_; }

 private:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes > left_) return ResourceExhaustedError("the limit of the test is reached");
    left_ -= bytes;
    return ::operator new(bytes, std::align_val_t(alignment));
  }
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    left_ += bytes;
    ::operator delete(block, std::align_val_t(alignment));
  }
  std::size_t left_;
};

TEST(DataParallel, TakesItsBuffersFromTheMemoryGiven) {
  auto memory = std::make_shared<Limited>(10'000);
  {
    at::Tensor a = Leaf({128}, 1);
    auto engine = Engine(Alone(), List({{"a", a}}), {.memory = memory});
    EXPECT_EQ(memory->left(), 10'000u - 2 * 128 * 4);
    engine.reset();
    EXPECT_EQ(memory->left(), 10'000u - 2 * 128 * 4);  // the model lives there
  }
  EXPECT_EQ(memory->left(), 10'000u);
}

class Throwing final : public MemoryResource {
 public:
  MemoryProperties properties() const override { return {.name = "throwing"}; }

 private:
  StatusOr<void*> DoAllocate(std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    throw std::runtime_error("the memory of the test throws");
  }
  void DoDeallocate(void* /*block*/, std::size_t /*bytes*/, std::size_t /*alignment*/) override {}
};

TEST(DataParallel, FailsOnAllRanksIfOneThrowsInCreate) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({128}, 1);
    DataParallelOptions options;
    if (communicator->rank() == Rank(1)) options.memory = std::make_shared<Throwing>();
    const Status status = DataParallel::Create(communicator, List({{"a", a}}), options).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr("the memory of the test throws"));
    EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  });
}

TEST(DataParallel, FailsOnAllRanksIfOneHasNoMemory) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    const at::Tensor a = Leaf({128}, 1);
    DataParallelOptions options;
    if (communicator->rank() == Rank(1)) options.memory = std::make_shared<Limited>(600);
    const Status status = DataParallel::Create(communicator, List({{"a", a}}), options).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr("the limit of the test is reached"));
  });
}

}  // namespace
}  // namespace ait
