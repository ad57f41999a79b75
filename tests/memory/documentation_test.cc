// SPDX-License-Identifier: Apache-2.0
// The code of docs/memory.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/failure_callback.h"
#include "ait/memory/guard.h"
#include "ait/memory/heap.h"
#include "ait/memory/limit.h"
#include "ait/memory/logging.h"
#include "ait/memory/pinned.h"
#include "ait/memory/pool.h"
#include "ait/memory/shared_arena.h"
#include "ait/memory/statistics.h"
#include "ait/memory/tracking.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

// clang-format off: as the page shows it
StatusOr<HostBuffer> MakeWeights(std::size_t count) {
  MemoryHandle memory = HeapResource::Create();
  AIT_ASSIGN_OR_RETURN(HostBuffer weights, HostBuffer::Create(memory, count * sizeof(float)));
  std::ranges::fill(weights.As<float>(), 0.0f);
  return weights;
}

StatusOr<PoolStatistics> UsePool(std::size_t bytes) {
  PoolOptions options;
  options.idle_time = std::chrono::seconds(30);
  AIT_ASSIGN_OR_RETURN(const auto pool, PoolResource::Create(options));
  AIT_ASSIGN_OR_RETURN(HostBuffer first, HostBuffer::Create(pool, bytes));
  first = HostBuffer();
  AIT_ASSIGN_OR_RETURN(HostBuffer second, HostBuffer::Create(pool, bytes / 2));
  const PoolStatistics now = pool->statistics();
  pool->Trim();
  return now;
}

Status ShareBlock(std::size_t bytes) {
  AIT_ASSIGN_OR_RETURN(const auto arena, SharedArena::Create({.capacity = MiB(64)}));
  AIT_ASSIGN_OR_RETURN(void* const block, arena->Allocate(bytes));
  AIT_ASSIGN_OR_RETURN(const Bytes offset, arena->OffsetOf(block, bytes));
  const int fd = arena->fd();
  AIT_ASSIGN_OR_RETURN(const SharedArenaView view, SharedArenaView::Attach(fd));
  AIT_ASSIGN_OR_RETURN(void* const same_block, view.At(offset, bytes));
  std::memset(block, 5, bytes);
  return std::memcmp(block, same_block, bytes) == 0 ? OkStatus() : InternalError("not the same");
}

Status PlaceBlock(SharedArena* arena, Bytes offset, const void* block, std::size_t bytes, int node) {
  AIT_RETURN_IF_ERROR(arena->Place(offset, bytes, node));
  const PlacementReport report = arena->Verify(block, bytes);
  return report.verdict == PlacementVerdict::kWrong ? InternalError(report.reason) : OkStatus();
}

StatusOr<std::int64_t> PeakOf(const MemoryHandle& memory, std::size_t bytes) {
  std::int64_t peak_of_forward = 0;
  const auto counted = StatisticsResource::Create(memory);
  {
    StatisticsScope scope(counted);
    AIT_ASSIGN_OR_RETURN(HostBuffer activations, HostBuffer::Create(counted, bytes));
    peak_of_forward = scope.statistics().peak_bytes;
  }
  return peak_of_forward;
}
/// What the error of an allocation above the limit says.
StatusOr<std::string> ReachTheLimit() {
  const auto tracked = TrackingResource::Create(HeapResource::Create());
  LimitOptions limit = {.limit = MiB(8), .tracking = tracked};
  AIT_ASSIGN_OR_RETURN(const auto limited, LimitResource::Create(tracked, limit));
  const MemoryLabel label("loader");
  AIT_ASSIGN_OR_RETURN(HostBuffer batch, HostBuffer::Create(limited, 6 << 20));
  const StatusOr<HostBuffer> too_much = HostBuffer::Create(limited, 4 << 20);
  return Message(too_much.status());
}

StatusOr<HostBuffer> MakeRoom(const MemoryHandle& limited, HeapResource* cache, std::size_t bytes) {
  FailureCallbackOptions options;
  options.callback = [&](const AllocationFailure&) { return cache->Trim() > Bytes(0); };
  const MemoryHandle memory = FailureCallbackResource::Create(limited, options);
  return HostBuffer::Create(memory, bytes);
}

void RunProgram(const MemoryHandle& memory) {
  for (std::size_t i = 1; i <= 10; ++i) EXPECT_OK(HostBuffer::Create(memory, i * 1000));
}

StatusOr<ReplayResult> Replay(const MemoryHandle& other) {
  std::string text = AllocationCsvHeader();
  LoggingOptions log;
  log.writer = [&](const AllocationEvent& event) { text += ToCsv(event); };
  const MemoryHandle logged = LoggingResource::Create(HeapResource::Create(), log);
  RunProgram(logged);
  AIT_ASSIGN_OR_RETURN(const auto events, ParseAllocationCsv(text));
  AIT_ASSIGN_OR_RETURN(const ReplayResult replayed, ReplayAllocations(events, other));
  return replayed;
}

StatusOr<std::vector<Status>> FreeTwice() {
  std::vector<Status> seen;
  GuardOptions options;
  options.on_error = [&](const Status& error) { seen.push_back(error); };
  const auto guard = GuardResource::Create(options);
  AIT_ASSIGN_OR_RETURN(void* const block, guard->Allocate(1000));
  guard->Deallocate(block, 1000);
  guard->Deallocate(block, 1000);
  return seen;
}

StatusOr<PinnedCounters> Pin() {
  PinnedOptions options;
  options.on_failure = PinFailure::kUsePageable;
  AIT_ASSIGN_OR_RETURN(const auto pinned, PinnedResource::Create(options));
  AIT_ASSIGN_OR_RETURN(HostBuffer staging, HostBuffer::Create(pinned, 2304 * 1024));
  const PinnedCounters now = pinned->counters();
  return now;
}
// clang-format on

TEST(MemoryPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/memory.md", AIT_SOURCE);
}

TEST(MemoryPage, ItsCodeRuns) {
  ASSERT_OK_AND_ASSIGN(const HostBuffer weights, MakeWeights(10));
  EXPECT_EQ(weights.As<float>()[9], 0.0f);
  EXPECT_OK(ShareBlock(1000));
  const auto arena = SharedArena::Create({.capacity = MiB(1)}).value();
  EXPECT_FALSE(PlaceBlock(arena.get(), MiB(2), nullptr, 1, 0).ok()) << "not inside of it";
  ASSERT_OK_AND_ASSIGN(const PoolStatistics pool, UsePool(std::size_t{1} << 20));
  EXPECT_EQ(pool.live_bytes, 1 << 19);
  EXPECT_EQ(pool.touched_bytes, 1 << 20) << "the second lies where the first was";
  EXPECT_EQ(PeakOf(HeapResource::Create(), 300).value(), 300);
  EXPECT_EQ(
      ReachTheLimit().value(),
      "cannot allocate 4194304 bytes from limit(tracking(heap)): 6291456 of 8388608 bytes are "
      "held, most by \"loader\" (6291456 bytes in 1 block); give some back or raise the limit");
  EXPECT_EQ(Pin()->waste, Bytes(0));
  const auto heap = HeapResource::Create();
  EXPECT_OK(MakeRoom(heap, heap.get(), 1000));
  EXPECT_EQ(Replay(HeapResource::Create())->allocations, 10);
  EXPECT_THAT(FreeTwice().value(),
              ::testing::ElementsAre(testing::StatusIs(StatusCode::kFailedPrecondition,
                                                       ::testing::HasSubstr("double free"))));
}

}  // namespace
}  // namespace ait
