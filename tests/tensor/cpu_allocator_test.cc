// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/cpu_allocator.h"

#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ait/memory/heap.h"
#include "ait/memory/pool.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"
#include "tensor/block_table_internal.h"
#include "tensor/catch.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CpuAllocatorTest : public ::testing::Test {
 protected:
  MemoryStatistics counted() const { return memory_->statistics(); }

  std::shared_ptr<StatisticsResource> memory_ = StatisticsResource::Create(HeapResource::Create());
};

TEST_F(CpuAllocatorTest, TensorsComeFromTheResourceWhileTheScopeLives) {
  const at::Tensor before = at::ones({1000});
  {
    ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
    EXPECT_EQ(scope.live_count(), 0);
    const at::Tensor inside = at::empty({1000});
    EXPECT_EQ(counted().current_bytes, 4000);
    EXPECT_EQ(scope.live_count(), 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(inside.data_ptr()) % 128, 0u);
  }
  EXPECT_EQ(counted().current_bytes, 0);
  const at::Tensor after = at::empty({1000});
  EXPECT_EQ(counted().total_bytes, 4000);
}

TEST_F(CpuAllocatorTest, TheNumbersAreThoseOfMalloc) {
  const auto train = [] {
    at::Tensor weights = at::ones({64, 64}).mul_(0.01).set_requires_grad(true);
    at::Tensor x = at::ones({16, 64});
    for (int i = 0; i < 4; ++i) x = at::gelu(at::mm(x, weights), "tanh");
    x.sum().backward();
    return weights.grad().clone();
  };
  const at::Tensor expected = train();
  ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
  EXPECT_TRUE(train().equal(expected));
  EXPECT_GT(counted().total_count, 20);
}

TEST_F(CpuAllocatorTest, TensorsMayOutliveTheScopeAndKeepTheResource) {
  std::weak_ptr<StatisticsResource> resource = memory_;
  at::Tensor tensor;
  {
    ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(std::move(memory_)));
    tensor = at::ones({100});
  }
  ASSERT_FALSE(resource.expired());
  EXPECT_EQ(resource.lock()->statistics().current_bytes, 400);
  const at::Tensor after = at::ones({100});
  EXPECT_EQ(resource.lock()->statistics().current_bytes, 400) << "a new tensor is malloc's";
  tensor = at::Tensor();
  EXPECT_TRUE(resource.expired());
}

TEST_F(CpuAllocatorTest, TensorsMadeBeforeMayEndInside) {
  at::Tensor before = at::ones({100'000});
  ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
  before = at::ones({10});
  EXPECT_EQ(counted().current_bytes, 40);
}

TEST_F(CpuAllocatorTest, AStorageThatGrowsAfterTheScopeGrowsInMalloc) {
  at::Tensor tensor;
  {
    ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
    tensor = at::ones({10});
  }
  tensor.resize_({1000});
  EXPECT_EQ(tensor[9].item<float>(), 1);
  EXPECT_EQ(counted().current_bytes, 0);
  ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
  tensor.resize_({2000});
  EXPECT_EQ(counted().current_bytes, 8000);
}

// oneDNN takes by raw_allocate and gives back by raw_deallocate, to whatever is in place then.
TEST_F(CpuAllocatorTest, RawBlocksMayCrossTheEndsOfScopes) {
  void* const before = c10::GetCPUAllocator()->raw_allocate(100);
  void* inside = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
    c10::GetCPUAllocator()->raw_deallocate(before);
    c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(50));
    c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(0));
    EXPECT_NE(c10::GetCPUAllocator()->raw_deleter(), nullptr);
    inside = c10::GetCPUAllocator()->raw_allocate(200);
    EXPECT_EQ(counted().current_bytes, 200);
  }
  void* const after = c10::GetCPUAllocator()->raw_allocate(300);
  EXPECT_EQ(counted().current_bytes, 200);
  c10::GetCPUAllocator()->raw_deallocate(inside);
  EXPECT_EQ(counted().current_bytes, 0);
  c10::GetCPUAllocator()->raw_deallocate(after);
}

TEST_F(CpuAllocatorTest, ConvolutionsOfOneDnnWork) {
  const at::Tensor image = at::ones({2, 8, 32, 32}), kernel = at::ones({16, 8, 3, 3});
  const at::Tensor expected = at::conv2d(image, kernel);
  at::Tensor outlives;
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
    outlives = at::conv2d(image, kernel);
    EXPECT_TRUE(outlives.equal(expected));
    at::Tensor w = kernel.clone().set_requires_grad(true);
    at::conv2d(image, w).sum().backward();
    EXPECT_EQ(w.grad().numel(), kernel.numel());
  }
  EXPECT_TRUE(at::conv2d(image, kernel).equal(expected));
}

// A thread takes scratch memory of oneDNN in one scope, and gives it back in another or in none.
TEST_F(CpuAllocatorTest, ConvolutionsOnThreadsWhileScopesComeAndGo) {
  ASSERT_OK_AND_ASSIGN(const auto pool, PoolResource::Create());
  const at::Tensor image = at::ones({2, 8, 32, 32}), kernel = at::ones({16, 8, 3, 3});
  const at::Tensor expected = at::conv2d(image, kernel);
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) wrong += !at::conv2d(image, kernel).equal(expected);
    });
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_OK(CpuAllocatorScope::Create(pool));
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool->statistics().live_bytes, 0);
}

TEST_F(CpuAllocatorTest, OneScopeAtATime) {
  ASSERT_OK_AND_ASSIGN(auto scope, CpuAllocatorScope::Create(memory_));
  EXPECT_THAT(CpuAllocatorScope::Create(HeapResource::Create()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another CpuAllocatorScope")));
  auto moved = std::move(scope);
  const at::Tensor tensor = at::ones({3});
  EXPECT_EQ(moved.live_count(), 1);
}

TEST_F(CpuAllocatorTest, LeavesTheAllocatorOfAnotherLibraryAlone) {
  struct Foreign final : c10::Allocator {
    c10::DataPtr allocate(std::size_t) override { return {}; }
    void copy_data(void*, const void*, std::size_t) const override {}
  };
  static Foreign foreign;
  c10::SetCPUAllocator(&foreign);
  EXPECT_THAT(CpuAllocatorScope::Create(memory_),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another library")));
  EXPECT_EQ(c10::GetCPUAllocator(), &foreign);
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
}

// In a process of its own: priorities only ever rise.
TEST_F(CpuAllocatorTest, SaysSoWhereThePlaceIsClaimedAtAHigherPriority) {
  if (fork() == 0) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 200);
    const auto scope = CpuAllocatorScope::Create(memory_);
    const bool told = scope.status().code() == StatusCode::kFailedPrecondition &&
                      Message(scope.status()).find("higher priority") != std::string::npos;
    _exit(told && at::ones({3}).sum().item<float>() == 3 ? 0 : 1);
  }
  int status = 0;
  ASSERT_GT(wait(&status), 0);
  EXPECT_EQ(status, 0);
}

TEST_F(CpuAllocatorTest, RefusesMemoryThatIsNone) {
  EXPECT_THAT(CpuAllocatorScope::Create(MemoryHandle()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty handle")));
}

/// Has room for a number of bytes.
class Limited final : public MemoryResource {
 public:
  explicit Limited(std::int64_t room) : room_(room) {}
  MemoryProperties properties() const override { return {.name = "limited"}; }

 private:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    if (room_.fetch_sub(static_cast<std::int64_t>(bytes)) < static_cast<std::int64_t>(bytes)) {
      room_ += static_cast<std::int64_t>(bytes);
      return ResourceExhaustedError("limited to less; the activations hold most of it");
    }
    return heap_->Allocate(bytes, alignment);
  }
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    room_ += static_cast<std::int64_t>(bytes);
    heap_->Deallocate(block, bytes, alignment);
  }

  const std::shared_ptr<HeapResource> heap_ = HeapResource::Create();
  std::atomic<std::int64_t> room_;
};

TEST_F(CpuAllocatorTest, ALackOfMemoryIsLibtorchsErrorWithOurText) {
  ASSERT_OK_AND_ASSIGN(const auto scope,
                       CpuAllocatorScope::Create(std::make_shared<Limited>(10'000)));
  EXPECT_THROW(at::empty({100'000}), c10::OutOfMemoryError);
  EXPECT_THAT(internal::CatchAsStatus([] { return at::ones({100'000}); }),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("400000 bytes"), HasSubstr("activations hold most"))));
  EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000) << "it goes on";
  EXPECT_THAT(internal::CatchAsStatus([] { return at::empty({std::int64_t{1} << 50}); }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("did not overflow")));
  EXPECT_EQ(scope.live_count(), 0);
}

// A backward that runs out of memory on the way.
TEST_F(CpuAllocatorTest, ALackOfMemoryInBackwardComesOutOfIt) {
  ASSERT_OK_AND_ASSIGN(const auto scope,
                       CpuAllocatorScope::Create(std::make_shared<Limited>(75'000)));
  at::Tensor x = at::ones({64, 64}).set_requires_grad(true);  // 16 KiB each
  const at::Tensor loss = x.mul(x).mul(x).mul(x).sum();
  EXPECT_THAT(internal::CatchAsStatus([&] { loss.backward(); }),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("activations hold most")));
}

TEST_F(CpuAllocatorTest, TheProfilerSeesBothEnds) {
  struct Reporter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                           c10::Device device) override {
      EXPECT_TRUE(device.is_cpu());
      live += bytes;
      ++calls;
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t live = 0;
    int calls = 0;
  };
  ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(memory_));
  const auto reporter = std::make_shared<Reporter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reporter);
  {
    const at::Tensor tensor = at::empty({1000});
    EXPECT_EQ(reporter->live, 4000);
  }
  EXPECT_EQ(reporter->live, 0);
  EXPECT_EQ(reporter->calls, 2);
}

TEST_F(CpuAllocatorTest, ThreadsMakeAndDropTensorsWhileScopesComeAndGo) {
  ASSERT_OK_AND_ASSIGN(const auto pool, PoolResource::Create());
  {
    std::vector<std::jthread> threads;
    std::mutex mutex;
    std::vector<at::Tensor> shared;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&](const std::stop_token& stop) {
        for (int i = 0; !stop.stop_requested(); ++i) {
          const at::Tensor mine = at::ones({1 + i % 3000});
          at::Tensor others;
          {
            const std::lock_guard lock(mutex);
            shared.push_back(mine);
            if (shared.size() > 20) {
              others = shared.front();
              shared.erase(shared.begin());
            }
          }
          if (others.defined() && others[0].item<float>() != 1) ++wrong;
        }
      });
    }
    for (int i = 0; i < 50; ++i) {
      const auto scope = CpuAllocatorScope::Create(pool);
      EXPECT_OK(scope);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    threads.clear();
    EXPECT_EQ(wrong, 0);
  }
  EXPECT_EQ(pool->statistics().live_bytes, 0);
}

TEST_F(CpuAllocatorTest, AForkedChildGoesOn) {
  ASSERT_OK_AND_ASSIGN(const auto pool, PoolResource::Create());
  ASSERT_OK_AND_ASSIGN(const auto scope, CpuAllocatorScope::Create(pool));
  const at::Tensor kept = at::ones({1000});
  std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) (void)at::empty({1000});
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      const at::Tensor made = at::empty({5000});
      made.fill_(2);
      _exit(kept[999].item<float>() == 1 && made[4999].item<float>() == 2 ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << "state " << state;
  }
}

TEST(BlockTable, FindsWhatWasPutInHoweverMuchWasTakenOut) {
  internal::BlockTable<int> table;
  int owner = 0;
  const auto block = [](std::size_t i) { return reinterpret_cast<void*>((i + 1) * 128); };
  constexpr std::size_t kBlocks = 20'000;
  for (std::size_t i = 0; i < kBlocks; ++i) table.Insert({block(i), i, &owner});
  for (std::size_t i = 0; i < kBlocks; i += 3) ASSERT_TRUE(table.Remove(block(i)).has_value());
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const auto entry = table.Remove(block(i));
    ASSERT_EQ(entry.has_value(), i % 3 != 0) << i;
    if (!entry.has_value()) continue;
    ASSERT_TRUE(entry->bytes == i && entry->owner == &owner && entry->block == block(i));
  }
  EXPECT_FALSE(table.Remove(block(1)).has_value());
}

}  // namespace
}  // namespace ait
