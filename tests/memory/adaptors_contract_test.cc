// SPDX-License-Identifier: Apache-2.0
// Each adaptor, and stacks of them, do what every resource does.
#include "ait/memory/failure_callback.h"
#include "ait/memory/guard.h"
#include "ait/memory/heap.h"
#include "ait/memory/limit.h"
#include "ait/memory/logging.h"
#include "ait/memory/pinned.h"
#include "ait/memory/shared_arena.h"
#include "ait/memory/statistics.h"
#include "ait/memory/thread_safe.h"
#include "ait/memory/tracking.h"
#include "contract/memory_resource_contract.h"

namespace ait {
namespace {

struct TrackingMaker {
  static MemoryHandle Make() { return TrackingResource::Create(HeapResource::Create()); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tracking, MemoryResourceContract, TrackingMaker);

struct TrackingWithStacksMaker {
  static MemoryHandle Make() {
    return TrackingResource::Create(HeapResource::Create(), {.stack_depth = 16});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(TrackingWithStacks, MemoryResourceContract, TrackingWithStacksMaker);

struct LimitMaker {
  static MemoryHandle Make() {
    return LimitResource::Create(HeapResource::Create(), {.limit = GiB(4)}).value();
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Limit, MemoryResourceContract, LimitMaker);

struct FailureCallbackMaker {
  static MemoryHandle Make() {
    return FailureCallbackResource::Create(
        HeapResource::Create(), {.callback = [](const AllocationFailure&) { return true; }});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(FailureCallback, MemoryResourceContract, FailureCallbackMaker);

struct LoggingMaker {
  static MemoryHandle Make() {
    const auto text = std::make_shared<std::string>();
    return LoggingResource::Create(
        HeapResource::Create(),
        {.writer = [text](const AllocationEvent& event) { *text += ToCsv(event); }});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Logging, MemoryResourceContract, LoggingMaker);

struct ThreadSafeMaker {
  static MemoryHandle Make() { return ThreadSafeResource::Create(HeapResource::Create()); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(ThreadSafe, MemoryResourceContract, ThreadSafeMaker);

struct GuardMaker {
  static MemoryHandle Make() { return GuardResource::Create(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Guard, MemoryResourceContract, GuardMaker);

struct GuardAtTheBeginMaker {
  static MemoryHandle Make() {
    return GuardResource::Create({.edge = GuardedEdge::kBegin, .quarantine = MiB(16)});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(GuardAtTheBegin, MemoryResourceContract, GuardAtTheBeginMaker);

struct PinnedMaker {
  static MemoryHandle Make() {
    return PinnedResource::Create({.on_failure = PinFailure::kUsePageable}).value();
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Pinned, MemoryResourceContract, PinnedMaker);

/// All of them, over what is given.
MemoryHandle Stack(MemoryHandle memory) {
  const auto tracking = TrackingResource::Create(std::move(memory));
  const auto limit =
      LimitResource::Create(tracking, {.limit = GiB(4), .tracking = tracking}).value();
  return StatisticsResource::Create(FailureCallbackResource::Create(
      LoggingResource::Create(ThreadSafeResource::Create(limit), {}), {}));
}

struct StackOnHeapMaker {
  static MemoryHandle Make() { return Stack(HeapResource::Create()); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(StackOnHeap, MemoryResourceContract, StackOnHeapMaker);

struct StackOnArenaMaker {
  static MemoryHandle Make() { return Stack(SharedArena::Create({.capacity = MiB(64)}).value()); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(StackOnArena, MemoryResourceContract, StackOnArenaMaker);

TEST(Stack, ShowsItsNameAndWhatItStandsOn) {
  EXPECT_EQ(StackOnHeapMaker::Make().properties().name,
            "statistics(failure callback(logging(thread-safe(limit(tracking(heap))))))");
  EXPECT_EQ(StackOnHeapMaker::Make().properties().sharing, Sharing::kThisProcess);
  EXPECT_EQ(StackOnArenaMaker::Make().properties().sharing, Sharing::kProcesses);
}

}  // namespace
}  // namespace ait
