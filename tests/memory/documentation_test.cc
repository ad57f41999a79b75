// SPDX-License-Identifier: Apache-2.0
// The code of docs/memory.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/pool.h"
#include "ait/memory/shared_arena.h"
#include "ait/memory/statistics.h"
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
// clang-format on

TEST(MemoryPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/memory.md", AIT_SOURCE);
}

TEST(MemoryPage, ItsCodeRuns) {
  ASSERT_OK_AND_ASSIGN(const HostBuffer weights, MakeWeights(10));
  EXPECT_EQ(weights.As<float>()[9], 0.0f);
  EXPECT_OK(ShareBlock(1000));
  ASSERT_OK_AND_ASSIGN(const PoolStatistics pool, UsePool(std::size_t{1} << 20));
  EXPECT_EQ(pool.live_bytes, 1 << 19);
  EXPECT_EQ(pool.touched_bytes, 1 << 20) << "the second lies where the first was";
  EXPECT_EQ(PeakOf(HeapResource::Create(), 300).value(), 300);
}

}  // namespace
}  // namespace ait
