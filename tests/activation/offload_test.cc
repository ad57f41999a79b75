// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/offload.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "activation/activation_fixtures.h"
#include "ait/activation/checkpoint.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::SameBits;
using testing::SmallNetwork;
using testing::StatusIs;

std::shared_ptr<ActivationOffload> Make(OffloadOptions options) {
  if (!options.memory && options.directory.empty()) options.memory = HeapResource::Create();
  options.at_least = Bytes(1024);
  return ActivationOffload::Create(std::move(options)).value();
}

std::string Directory() { return std::filesystem::temp_directory_path().string(); }

/// Moves everything: waits until the last tensor has been copied out.
void WaitUntilMoved(const ActivationOffload& offload, std::int64_t bytes) {
  while (offload.statistics().bytes_out < bytes) std::this_thread::yield();
}

/// The thread may hold on to a range for a moment longer than the graph.
void WaitUntilEmpty(const ActivationOffload& offload) {
  while (offload.statistics().stored_bytes > 0) std::this_thread::yield();
}

at::Tensor Leaf(std::int64_t n = 4096) {
  return at::linspace(-1, 1, n).clone().set_requires_grad(true);
}
constexpr std::int64_t kLeafBytes = std::int64_t{4096} * 4;

class OffloadWays : public ::testing::TestWithParam<std::tuple<bool, std::int64_t, std::int64_t>> {
 protected:
  static OffloadOptions Options() {
    const auto [file, in_flight, ahead] = GetParam();
    OffloadOptions options = {.in_flight = Bytes(in_flight), .ahead = Bytes(ahead)};
    if (file) options.directory = Directory();
    return options;
  }
};

TEST_P(OffloadWays, StepHasTheBitsOfOneWithout) {
  const SmallNetwork network;
  const auto plain = network.Step();
  const auto offload = Make(Options());
  for (int step = 0; step < 2; ++step) {
    std::vector<at::Tensor> moved;
    {
      const SavedTensorScope scope(offload);
      moved = network.Step();
    }
    EXPECT_TRUE(SameBits(moved, plain)) << step;
  }
  const OffloadStatistics statistics = offload->statistics();
  EXPECT_GT(statistics.moved, 60);
  EXPECT_GT(statistics.shared, 10);
  EXPECT_EQ(statistics.refused, 0) << statistics.refusal;
  EXPECT_GT(statistics.stored_peak_bytes, 100'000);
  EXPECT_EQ(statistics.saved, statistics.moved + statistics.small + statistics.unsupported);
  WaitUntilEmpty(*offload);
}

TEST_P(OffloadWays, RetainedGraphIsBroughtInAgain) {
  const SmallNetwork network;
  const auto plain = network.Step();
  const auto offload = Make(Options());
  at::Tensor loss;
  {
    const SavedTensorScope scope(offload);
    loss = network.Loss();
  }
  WaitUntilMoved(*offload, offload->statistics().stored_bytes);
  for (int i = 0; i < 2; ++i) {
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(SameBits(network.TakeGradients(), {plain.begin() + 1, plain.end()})) << i;
  }
  EXPECT_GT(offload->statistics().bytes_in, offload->statistics().stored_bytes);
  loss = at::Tensor();
  WaitUntilEmpty(*offload);
}

INSTANTIATE_TEST_SUITE_P(Targets, OffloadWays,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(0, std::int64_t{1} << 30),
                                            ::testing::Values(0, 20'000)));

TEST(ActivationOffload, MemoryIsGivenBackWhileTheTensorWaits) {
  const auto offload = Make({});
  const at::Tensor x = Leaf();
  at::Tensor y = x.tanh();
  y.sum().backward();
  const at::Tensor plain = x.grad();
  x.mutable_grad() = at::Tensor();
  c10::weak_intrusive_ptr<c10::StorageImpl> memory = y.storage().getWeakStorageImpl();
  at::Tensor loss;
  {
    const SavedTensorScope scope(offload);
    y = x.tanh();
    memory = y.storage().getWeakStorageImpl();
    loss = y.sum();
    y = at::Tensor();
  }
  WaitUntilMoved(*offload, kLeafBytes);
  while (!memory.expired()) std::this_thread::yield();  // a moment after it was counted
  EXPECT_EQ(offload->statistics().stored_bytes, kLeafBytes);
  loss.backward();
  EXPECT_EQ(offload->statistics().bytes_in, kLeafBytes);
  EXPECT_TRUE(at::equal(x.grad(), plain));
}

TEST(ActivationOffload, ATensorThatIsSavedOftenIsStoredOnce) {
  const auto memory = StatisticsResource::Create(HeapResource::Create());
  const auto offload = Make({.memory = memory});
  const SavedTensorScope scope(offload);
  const at::Tensor x = Leaf(), y = x.tanh();
  const at::Tensor loss = (y.sin() + y.view({64, 64}).cos().view(-1) + y.square()).sum();
  const OffloadStatistics statistics = offload->statistics();
  EXPECT_EQ(statistics.moved, 4);
  EXPECT_EQ(statistics.shared, 3);
  EXPECT_EQ(memory->statistics().total_count, 1);
  loss.backward();
  WaitUntilEmpty(*offload);
  EXPECT_EQ(memory->statistics().current_bytes, 0);
}

TEST(ActivationOffload, ParametersAndResidentTensorsStay) {
  const auto offload = Make({});
  const at::Tensor x = Leaf(), input = at::ones({4096});
  offload->KeepResident(std::vector<at::Tensor>{input});
  const SavedTensorScope scope(offload);
  const at::Tensor loss = (x * input).sum() + x.view({64, 64}).mm(x.view({64, 64}).t()).sum();
  EXPECT_EQ(offload->statistics().moved, 0);
  EXPECT_EQ(offload->statistics().resident, 1);
  loss.backward();
}

TEST(ActivationOffload, SmallAndThinTensorsStay) {
  const auto offload = Make({});
  const at::Tensor x = Leaf(64 * 64);
  const SavedTensorScope scope(offload);
  const at::Tensor y = x.view({64, 64}) * 2;
  const at::Tensor loss =
      y.narrow(1, 0, 1).expand({64, 3}).sin().sum() + y.narrow(0, 0, 2).sin().sum();
  EXPECT_EQ(offload->statistics().moved, 0);
  EXPECT_EQ(offload->statistics().small, 1);        // two rows: 512 bytes
  EXPECT_EQ(offload->statistics().unsupported, 1);  // a column: more gaps than elements
  loss.backward();
}

TEST(ActivationOffload, APartOfALargeTensorIsMovedAlone) {
  const auto offload = Make({});
  const at::Tensor x = Leaf(64 * 64);
  const SavedTensorScope scope(offload);
  const at::Tensor y = x.view({64, 64}) * 2;
  const at::Tensor loss = y.narrow(0, 33, 8).t().sin().sum();
  WaitUntilMoved(*offload, 1);
  EXPECT_EQ(offload->statistics().stored_bytes, 8 * 64 * 4);
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad().view({64, 64}).narrow(0, 33, 8),
                        (x.detach() * 2).cos().mul(2).view({64, 64}).narrow(0, 33, 8)));
}

TEST(ActivationOffload, AChangeInPlaceIsAnErrorOfBackward) {
  for (const bool moved : {false, true}) {
    const auto offload = Make({});
    const SavedTensorScope scope(offload);
    const at::Tensor x = Leaf(), y = x.tanh(), loss = y.sum();
    if (moved) WaitUntilMoved(*offload, kLeafBytes);
    y.detach().add_(1);
    try {
      loss.backward();
      FAIL() << "backward used a tensor that was changed";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("Float [4096] is at version 1, expected version 0"));
    }
  }
}

TEST(ActivationOffload, ARangeThatWasChangedIsStoredAnew) {
  const auto offload = Make({});
  const SavedTensorScope scope(offload);
  const at::Tensor x = Leaf();
  at::Tensor y = x * 1;
  {
    const at::Tensor dropped = y.sin();
  }
  y.add_(1);
  y.sin().sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), (x.detach() + 1).cos()));
}

TEST(ActivationOffload, BackwardOfAPartOfTheGraphLeavesTheRest) {
  const auto offload = Make({.ahead = Bytes(3 * kLeafBytes)});
  const SavedTensorScope scope(offload);
  const at::Tensor x = Leaf();
  std::vector<at::Tensor> losses;
  for (int i = 0; i < 8; ++i) {
    at::Tensor y = x * (i + 1);
    for (int k = 0; k < 30; ++k) y = y.sin();
    losses.push_back(y.sum());
  }
  WaitUntilMoved(*offload, 8 * 30 * kLeafBytes);
  for (const int i : {2, 7, 0}) {
    losses[static_cast<std::size_t>(i)].backward();
    const at::Tensor got = x.grad().clone();
    x.mutable_grad() = at::Tensor();
    const SavedTensorScope none(nullptr);
    at::Tensor y = x * (i + 1);
    for (int k = 0; k < 30; ++k) y = y.sin();
    y.sum().backward();
    EXPECT_TRUE(at::equal(got, x.grad())) << i;
    x.mutable_grad() = at::Tensor();
  }
}

TEST(ActivationOffload, SeveralThreadsShareOne) {
  const auto offload = Make({.in_flight = Bytes(100'000), .ahead = Bytes(100'000)});
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&offload, i] {
      const at::Tensor x = (at::linspace(-1, 1, 5000) * (i + 1)).set_requires_grad(true);
      const auto loss = [&x] {
        at::Tensor y = x;
        for (int k = 0; k < 20; ++k) y = y.sin() * y.tanh();
        return y.sum();
      };
      loss().backward();
      const at::Tensor plain = x.grad();
      for (int step = 0; step < 5; ++step) {
        x.mutable_grad() = at::Tensor();
        const SavedTensorScope scope(offload);
        loss().backward();
        EXPECT_TRUE(at::equal(x.grad(), plain));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  WaitUntilEmpty(*offload);
}

TEST(ActivationOffload, GraphOutlivesThePolicy) {
  const at::Tensor x = Leaf();
  at::Tensor loss = x.tanh().sin().sum();
  loss.backward();
  const at::Tensor plain = x.grad();
  x.mutable_grad() = at::Tensor();
  {
    const auto offload = Make({});
    const SavedTensorScope scope(offload);
    loss = x.tanh().sin().sum();
    WaitUntilMoved(*offload, kLeafBytes);
  }
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad(), plain));
}

TEST(ActivationOffload, AroundAndInsideOfCheckpoints) {
  const at::Tensor weight = (at::randn({64, 64}) * 0.1).set_requires_grad(true);
  const auto block = [&](const at::Tensor& in) { return in + in.mm(weight).tanh().sin(); };
  const at::Tensor start = at::randn({128, 64});
  const auto gradient = [&](const auto& segment) {
    at::Tensor x = start;
    for (int i = 0; i < 4; ++i) x = segment(x);
    x.square().sum().backward();
    const at::Tensor taken = weight.grad();
    weight.mutable_grad() = at::Tensor();
    return taken;
  };
  const at::Tensor plain = gradient(block);
  const auto around = Make({}), inside = Make({});
  {
    const SavedTensorScope scope(around);
    EXPECT_TRUE(
        at::equal(gradient([&](const at::Tensor& x) { return Checkpoint(block, x); }), plain));
    EXPECT_GT(around->statistics().moved, 2);  // inputs of segments
  }
  const auto moves = [&](const at::Tensor& x) {
    const SavedTensorScope scope(inside);
    return block(x);
  };
  EXPECT_TRUE(
      at::equal(gradient([&](const at::Tensor& x) { return Checkpoint(moves, x); }), plain));
  WaitUntilEmpty(*around);
  WaitUntilEmpty(*inside);
}

/// Has room for some blocks.
class Limited final : public MemoryResource {
 public:
  explicit Limited(int blocks) : left_(blocks) {}
  MemoryProperties properties() const override { return {.name = "limited"}; }

 protected:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    if (--left_ < 0) return ResourceExhaustedError("limited: no room for ", bytes, " bytes");
    return heap_.Allocate(bytes, alignment);
  }
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    heap_.Deallocate(block, bytes, alignment);
  }

 private:
  MemoryHandle heap_ = HeapResource::Create();
  std::atomic<int> left_;
};

TEST(ActivationOffload, WithoutRoomTensorsStay) {
  const SmallNetwork network;
  const auto plain = network.Step();
  const auto offload = Make({.memory = std::make_shared<Limited>(10)});
  const SavedTensorScope scope(offload);
  EXPECT_TRUE(SameBits(network.Step(), plain));
  const OffloadStatistics statistics = offload->statistics();
  EXPECT_GT(statistics.refused, 10);
  EXPECT_THAT(statistics.refusal, StatusIs(StatusCode::kResourceExhausted, HasSubstr("limited")));
}

TEST(ActivationOffload, AFullFileSystemIsNoError) {
  const SmallNetwork network;
  const auto plain = network.Step();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 200'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto offload = Make({.directory = Directory()});
  {
    const SavedTensorScope scope(offload);
    EXPECT_TRUE(SameBits(network.Step(), plain));
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  const OffloadStatistics statistics = offload->statistics();
  EXPECT_GT(statistics.moved, 0);
  EXPECT_GT(statistics.refused, 0);
  EXPECT_THAT(statistics.refusal, StatusIs(StatusCode::kResourceExhausted, HasSubstr("ulimit -f")));
}

TEST(ActivationOffload, DescribesItsTarget) {
  EXPECT_EQ(Make({})->Describe(), "blocks of heap");
  EXPECT_THAT(Make({.directory = Directory()})->Describe(), HasSubstr(Directory() + " ("));
}

TEST(ActivationOffload, RefusesWhatIsNotAllowed) {
  EXPECT_THAT(ActivationOffload::Create({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no target")));
  EXPECT_THAT(ActivationOffload::Create({.memory = HeapResource::Create(), .directory = "/tmp"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("two targets")));
  EXPECT_THAT(ActivationOffload::Create({.memory = HeapResource::Create(), .at_least = Bytes(0)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at_least is 0")));
  EXPECT_THAT(ActivationOffload::Create({.directory = "/no/such/place"}),
              StatusIs(StatusCode::kNotFound, HasSubstr("OffloadOptions::directory")));
}

}  // namespace
}  // namespace ait
