// SPDX-License-Identifier: Apache-2.0
// DataParallel against libtorch's own c10d::Reducer over the same group: gradient by gradient, bit
// for bit. The Reducer is private to libtorch and its constructor changes with each release; it is
// used here alone.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "ait/parallel/data_parallel.h"
#include "ait/tensor/view.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::RunRanks;
using ::ait::testing::TinyModel;
using ::ait::testing::Tokens;

class DoneWork final : public c10d::Work {
 public:
  explicit DoneWork(const std::vector<at::Tensor>& tensors)
      : Work(-1, c10d::OpType::UNKNOWN),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(c10::IValue(tensors));
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Lets c10d run over a communicator of ait.
class CommunicatorBackend final : public c10d::Backend {
 public:
  explicit CommunicatorBackend(std::shared_ptr<Communicator> communicator)
      : Backend(communicator->rank().value(), communicator->size().value()),
        communicator_(std::move(communicator)) {}
  const std::string getBackendName() const override { return "ait"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    EXPECT_TRUE(options.reduceOp == c10d::ReduceOp::SUM);
    EXPECT_OK(communicator_->AllReduce(View(tensors[0]).value(), ReduceOp::kSum).Wait());
    return c10::make_intrusive<DoneWork>(tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    EXPECT_OK(
        communicator_->Broadcast(View(tensors[0]).value(), Rank(static_cast<int>(options.rootRank)))
            .Wait());
    return c10::make_intrusive<DoneWork>(tensors);
  }

 private:
  std::shared_ptr<Communicator> communicator_;
};

c10::intrusive_ptr<c10d::ProcessGroup> GroupOver(std::shared_ptr<Communicator> communicator) {
  const int rank = communicator->rank().value();
  const int size = communicator->size().value();
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<CommunicatorBackend>(std::move(communicator)));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

std::vector<at::Tensor> Trainable(const TinyModel& model) {
  return {model.embedding, model.norm_weight, model.norm_bias, model.up,
          model.up_bias,   model.down,        model.down_bias, model.scale};
}

void CompareGradients(int rank, const std::shared_ptr<Communicator>& ours,
                      std::shared_ptr<Communicator> theirs) {
  constexpr std::int64_t kCap = 1200;  // bytes: several buckets
  TinyModel model;
  ASSERT_OK_AND_ASSIGN(
      auto engine, DataParallel::Create(ours, model.Parameters(),
                                        {.first_bucket = Bytes(kCap), .bucket_cap = Bytes(kCap)}));
  TinyModel reference;
  const std::vector<at::Tensor> parameters = Trainable(reference);
  const std::vector<bool> dense(parameters.size(), false);
  const auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, {kCap, kCap}, dense);
  c10d::Reducer reducer(parameters, {buckets.rbegin(), buckets.rend()},
                        GroupOver(std::move(theirs)), dense, kCap, /*find_unused_parameters=*/false,
                        /*gradient_as_bucket_view=*/true, /*param_names=*/{}, kCap,
                        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                        /*bucket_bytes_cap_list=*/{});
  for (int step = 0; step < 10; ++step) {
    {
      const c10::NoGradGuard no_grad;
      const std::vector<at::Tensor> values = Trainable(TinyModel(step + 2));
      const std::vector<at::Tensor> mine = Trainable(model);
      for (std::size_t i = 0; i < values.size(); ++i) {
        mine[i].copy_(values[i]);
        parameters[i].copy_(values[i]);
        if (parameters[i].grad().defined()) parameters[i].grad().zero_();
      }
    }
    const at::Tensor tokens = Tokens(7, 2 * step + rank);
    const at::Tensor targets = Tokens(7, 2 * step + rank + 1000);

    ASSERT_OK(engine->BeginMicroStep(MicroStep::kLast));
    ASSERT_OK(engine->Backward(model.Loss(tokens, targets)));
    ASSERT_OK(engine->FinishGradients({}));

    reducer.prepare_for_forward();
    reducer.rebuild_buckets();
    const at::Tensor loss = reference.Loss(tokens, targets);
    reducer.prepare_for_backward({loss});
    torch::autograd::backward({loss}, {});

    const std::vector<at::Tensor> mine = Trainable(model);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      // The Reducer divides by the world size: for two ranks an exact operation.
      EXPECT_TRUE(mine[i].grad().equal(parameters[i].grad().mul(2))) << step << " " << i;
    }
    ASSERT_OK(engine->Discard());
  }
  EXPECT_GE(engine->layout().buckets().size(), 3u);
}

TEST(DataParallel, GivesTheGradientsOfC10dReducerBitForBit) {
  auto second_group = MakeThreadGroup(WorldSize(2));
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank().value();
    CompareGradients(rank, communicator, second_group[static_cast<std::size_t>(rank)]);
  });
}

}  // namespace
}  // namespace ait
