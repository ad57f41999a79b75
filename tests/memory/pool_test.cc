// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "ait/memory/statistics.h"
#include "memory/poison_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kKiB = 1024, kMiB = std::size_t{1} << 20;

std::shared_ptr<PoolResource> MakePool(PoolOptions options = {}) {
  return PoolResource::Create(options).value();
}

std::vector<void*> Take(PoolResource& pool, std::size_t bytes, int count) {
  std::vector<void*> blocks;
  for (int i = 0; i < count; ++i) {
    blocks.push_back(pool.Allocate(bytes).value());
    std::memset(blocks.back(), 1, bytes);
  }
  return blocks;
}

void GiveBack(PoolResource& pool, const std::vector<void*>& blocks, std::size_t bytes) {
  for (void* const block : blocks) pool.Deallocate(block, bytes);
}

/// How many of the bytes at `address` are in memory.
std::size_t Resident(const void* address, std::size_t bytes) {
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address) / 4096 * 4096;
  std::vector<unsigned char> pages(bytes / 4096);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), bytes, pages.data()), 0);
  std::size_t resident = 0;
  for (const unsigned char page : pages) resident += (page & 1) * std::size_t{4096};
  return resident;
}

/// An upstream that has `room` bytes, and may be told to do something before it refuses.
class SmallUpstream final : public MemoryResource {
 public:
  explicit SmallUpstream(std::size_t room) : room_(room) {}
  MemoryProperties properties() const override { return {.name = "small", .residence = residence}; }

  Residence residence = Residence::kHost;
  std::function<void()> before_refusal;
  int chunks = 0;

 private:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes > room_ && before_refusal) before_refusal();
    if (bytes > room_) return ResourceExhaustedError("small has ", room_, " bytes");
    room_ -= bytes;
    ++chunks;
    return std::aligned_alloc(alignment, bytes);
  }
  void DoDeallocate(void* block, std::size_t bytes, std::size_t) override {
    room_ += bytes;
    --chunks;
    std::free(block);
  }
  std::size_t room_;
};

TEST(Pool, ServesOneSizeFromWhatWasFreedInAnother) {
  const auto pool = MakePool();
  const auto small = Take(*pool, kMiB, 60);
  const std::int64_t held = pool->statistics().held_bytes;
  EXPECT_EQ(held, 64 << 20);
  GiveBack(*pool, small, kMiB);
  const auto large = Take(*pool, 60 * kMiB, 1);
  GiveBack(*pool, large, 60 * kMiB);
  const auto pages = Take(*pool, 40 * kKiB, 1000);
  GiveBack(*pool, pages, 40 * kKiB);
  const auto objects = Take(*pool, 100, 100'000);
  EXPECT_EQ(pool->statistics().held_bytes, held) << "one chunk served all";
  EXPECT_LE(pool->statistics().touched_bytes, 61 << 20);
  GiveBack(*pool, objects, 100);
}

TEST(Pool, TakesFromPagesInUseBeforeFreshOnes) {
  const auto pool = MakePool();
  const auto blocks = Take(*pool, 2 * kMiB, 10);
  GiveBack(*pool, blocks, 2 * kMiB);
  const std::int64_t touched = pool->statistics().touched_bytes;
  for (std::size_t bytes = 100 * kKiB; bytes < 20 * kMiB; bytes += bytes / 3) {
    GiveBack(*pool, Take(*pool, bytes, 1), bytes);
  }
  EXPECT_EQ(pool->statistics().touched_bytes, touched);
}

TEST(Pool, RoundsByAtMostAnEighthFromOneKibibyteOn) {
  const auto pool = MakePool();
  for (std::size_t bytes = 1; bytes < 4 * kMiB; bytes += bytes / 7 + 1) {
    void* const block = pool->Allocate(bytes).value();
    const std::size_t usable = pool->UsableSize(block);
    EXPECT_GE(usable, bytes);
    EXPECT_LT(usable, bytes + std::max<std::size_t>(128, bytes / 8 + 1)) << bytes;
    pool->Deallocate(block, bytes);
  }
}

TEST(Pool, CountsWhatRoundingTakes) {
  const auto pool = MakePool();
  EXPECT_EQ(pool->statistics().waste(), 0);
  void* const block = pool->Allocate(96).value();
  EXPECT_EQ(pool->statistics().waste(), 0.25);
  EXPECT_EQ(pool->statistics().live_bytes, 128);
  pool->Deallocate(block, 96);
  EXPECT_EQ(pool->statistics().live_bytes, 0);
  EXPECT_EQ(pool->statistics().requested_total_bytes, 96);
}

TEST(Pool, FindsTheSizeOfItsBlocksAndOfNoOthers) {
  const auto pool = MakePool();
  const auto other = MakePool();
  int on_the_stack = 0;
  for (const std::size_t bytes :
       {std::size_t{1}, 5000 * kKiB / kKiB, 33 * kKiB, 3 * kMiB, 200 * kMiB}) {
    void* const block = pool->Allocate(bytes).value();
    EXPECT_GE(pool->UsableSize(block), bytes);
    EXPECT_EQ(other->UsableSize(block), 0u);
    other->DeallocateUnsized(block);  // not its own: nothing happens
    pool->DeallocateUnsized(block);
  }
  EXPECT_EQ(pool->UsableSize(&on_the_stack), 0u);
  EXPECT_EQ(pool->UsableSize(nullptr), 0u);
  pool->DeallocateUnsized(nullptr);
  EXPECT_EQ(pool->statistics().live_bytes, 0);
}

TEST(Pool, TrimGivesBackAllThatIsFree) {
  const auto pool = MakePool();
  const auto blocks = Take(*pool, 3 * kMiB, 40);
  const auto objects = Take(*pool, 700, 5000);
  void* const kept = blocks[20];
  for (void* const block : blocks) {
    if (block != kept) pool->Deallocate(block, 3 * kMiB);
  }
  GiveBack(*pool, objects, 700);
  EXPECT_GE(pool->Trim(), MiB(39 * 3));
  PoolStatistics now = pool->statistics();
  EXPECT_EQ(now.cached_bytes, 0);
  EXPECT_EQ(now.touched_bytes, 3 << 20);
  EXPECT_EQ(now.held_bytes, 64 << 20) << "the chunk of the block that is kept";
  EXPECT_EQ(Resident(kept, 3 * kMiB), 3 * kMiB);
  EXPECT_EQ(static_cast<char*>(kept)[3 * kMiB - 1], 1);
  EXPECT_EQ(pool->Trim(), Bytes(0));
  pool->Deallocate(kept, 3 * kMiB);
  EXPECT_EQ(pool->Trim(), MiB(3));
  now = pool->statistics();
  EXPECT_EQ(now.held_bytes, 0);
  EXPECT_EQ(now.chunk_count, 0);
  EXPECT_EQ(now.peak_bytes >> 20, 120 + 3) << "of the objects as well";
}

TEST(Pool, DiscardedPagesLeaveMemoryAndCanBeUsedAgain) {
  const auto pool = MakePool({.huge_pages = HugePages::kNever});
  void* const kept = pool->Allocate(kMiB).value();
  void* const freed = pool->Allocate(16 * kMiB).value();
  std::memset(freed, 7, 16 * kMiB);
  EXPECT_EQ(Resident(freed, 16 * kMiB), 16 * kMiB);
  pool->Deallocate(freed, 16 * kMiB);
  pool->Trim();
  EXPECT_EQ(Resident(freed, 16 * kMiB), 0u);
  GiveBack(*pool, Take(*pool, 16 * kMiB, 1), 16 * kMiB);
  pool->Deallocate(kept, kMiB);
}

TEST(Pool, KeepsWhatEveryStepNeedsAndReturnsWhatNoneDoes) {
  ManualClock clock;
  const auto pool = MakePool({.idle_time = std::chrono::seconds(10), .clock = &clock});
  void* const weights = pool->Allocate(10 * kMiB).value();
  const auto step = [&](std::size_t bytes) {
    GiveBack(*pool, Take(*pool, bytes, 60), bytes);
    clock.Advance(std::chrono::seconds(3));
  };
  for (int i = 0; i < 15; ++i) step(2 * kMiB);
  EXPECT_EQ(pool->statistics().returned_total_bytes, 0) << "a steady state returns nothing";
  for (int i = 0; i < 3; ++i) step(256 * kKiB);
  EXPECT_EQ(pool->statistics().returned_total_bytes, 0) << "too early";
  for (int i = 0; i < 6; ++i) step(256 * kKiB);
  const PoolStatistics now = pool->statistics();
  EXPECT_GE(now.returned_total_bytes, 80 << 20);
  EXPECT_LE(now.touched_bytes, 48 << 20);
  pool->Deallocate(weights, 10 * kMiB);
}

TEST(Pool, WithoutIdleTimeReturnsAtOnce) {
  const auto pool = MakePool({.idle_time = std::chrono::milliseconds(0)});
  GiveBack(*pool, Take(*pool, 8 * kMiB, 50), 8 * kMiB);
  EXPECT_EQ(pool->statistics().touched_bytes, 0);
}

TEST(Pool, KeepsPagesOfAnotherResourceAndReturnsChunks) {
  const auto upstream = std::make_shared<SmallUpstream>(128 * kMiB);
  const auto pool = MakePool({.upstream = upstream, .chunk_bytes = MiB(32)});
  EXPECT_EQ(pool->properties().name, "pool(small)");
  const auto blocks = Take(*pool, 10 * kMiB, 9);
  EXPECT_EQ(upstream->chunks, 3);
  pool->Deallocate(blocks[0], 10 * kMiB);
  EXPECT_EQ(pool->Trim(), Bytes(0)) << "its chunk is in use, and its pages are not the pool's";
  for (int i = 1; i < 9; ++i) pool->Deallocate(blocks[static_cast<std::size_t>(i)], 10 * kMiB);
  EXPECT_EQ(pool->Trim(), MiB(96));
  EXPECT_EQ(upstream->chunks, 0);
}

TEST(Pool, LooksAgainAtWhatOthersLeftWhenTheUpstreamRefuses) {
  const auto upstream = std::make_shared<SmallUpstream>(8 * kMiB);
  const auto pool = MakePool({.upstream = upstream, .chunk_bytes = MiB(8)});
  void* other = pool->Allocate(8 * kMiB).value();
  upstream->before_refusal = [&] {  // as another thread would
    if (other != nullptr) pool->Deallocate(std::exchange(other, nullptr), 8 * kMiB);
    pool->Deallocate(pool->Allocate(kMiB).value(), kMiB);
  };
  ASSERT_OK_AND_ASSIGN(void* const block, pool->Allocate(kMiB));
  pool->Deallocate(block, kMiB);
}

TEST(Pool, CountsChunksOfAnotherResourceAsTouched) {
  const auto pool = MakePool({.upstream = HeapResource::Create(), .chunk_bytes = MiB(8)});
  void* const block = pool->Allocate(kMiB).value();
  EXPECT_EQ(pool->statistics().touched_bytes, 8 << 20) << "it may be locked or bound";
  pool->Deallocate(block, kMiB);
  EXPECT_EQ(pool->Trim(), MiB(8));
}

TEST(Pool, MakesDoWithLessThanAChunk) {
  const auto upstream = std::make_shared<SmallUpstream>(10 * kMiB);
  const auto pool = MakePool({.upstream = upstream});
  void* const block = pool->Allocate(7 * kMiB).value();
  EXPECT_EQ(pool->statistics().held_bytes, 8 << 20);
  EXPECT_THAT(pool->Allocate(7 * kMiB),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("7340032 bytes in one piece"), HasSubstr("holds 8388608"),
                             HasSubstr("small has 2097152 bytes"))));
  pool->Deallocate(block, 7 * kMiB);
}

TEST(Pool, GivesBackItsOwnBeforeItFails) {
  const auto upstream = std::make_shared<SmallUpstream>(64 * kMiB);
  const auto pool = MakePool({.upstream = upstream, .chunk_bytes = MiB(16)});
  GiveBack(*pool, Take(*pool, 12 * kMiB, 4), 12 * kMiB);
  ASSERT_OK_AND_ASSIGN(void* const block, pool->Allocate(60 * kMiB));
  pool->Deallocate(block, 60 * kMiB);
}

TEST(Pool, AnUpstreamThatRunsOutMayGiveBackBlocksOfThePool) {
  const auto upstream = std::make_shared<SmallUpstream>(16 * kMiB);
  const auto pool = MakePool({.upstream = upstream, .chunk_bytes = MiB(16)});
  void* cache = pool->Allocate(14 * kMiB).value();
  upstream->before_refusal = [&] {
    pool->Deallocate(cache, 14 * kMiB);
    cache = nullptr;
    upstream->before_refusal = nullptr;
  };
  ASSERT_OK_AND_ASSIGN(void* const block, pool->Allocate(14 * kMiB));
  EXPECT_EQ(cache, nullptr);
  pool->Deallocate(block, 14 * kMiB);
}

TEST(Pool, RefusesWhatItCannotBe) {
  const auto device = std::make_shared<SmallUpstream>(0);
  device->residence = Residence::kDevice;
  EXPECT_THAT(PoolResource::Create({.upstream = device}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("memory of a device")));
  EXPECT_THAT(PoolResource::Create({.chunk_bytes = Bytes(-1)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_THAT(PoolResource::Create({.idle_time = std::chrono::milliseconds(-5)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-5 ms")));
}

TEST(Pool, TakesAndReturnsTheSameOfItsUpstream) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  {
    const auto pool = MakePool({.upstream = counted});
    for (int round = 0; round < 3; ++round) {
      GiveBack(*pool, Take(*pool, 5 * kMiB, 30), 5 * kMiB);
      if (round == 1) pool->Trim();
    }
    EXPECT_GT(counted->statistics().current_bytes, 0);
  }
  EXPECT_EQ(counted->statistics().current_bytes, 0);
  EXPECT_EQ(counted->statistics().current_count, 0);
}

TEST(Pool, TellsAddressSanitizerWhatIsFree) {
  if (!internal::kPoisons) GTEST_SKIP() << "built without AddressSanitizer";
  const auto pool = MakePool();
  for (const std::size_t bytes : {std::size_t{100}, 5 * kMiB + 10}) {
    char* const block = static_cast<char*>(pool->Allocate(bytes).value());
    EXPECT_FALSE(internal::IsPoisoned(block + bytes - 1));
    EXPECT_TRUE(internal::IsPoisoned(block + bytes + 8)) << "past the end";
    pool->Deallocate(block, bytes);
    EXPECT_TRUE(internal::IsPoisoned(block));
  }
}

// Against a model: blocks never overlap, what is written stays, and when all is free it is one piece.
TEST(Pool, BehavesAsAModelDoes) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const auto pool = MakePool({.chunk_bytes = MiB(4 << seed % 4)});
    std::mt19937_64 random(seed);
    std::map<std::uintptr_t, std::pair<std::size_t, std::size_t>> live;  // begin -> size, alignment
    std::size_t live_bytes = 0;
    const auto stamp = [](std::uintptr_t at, std::size_t bytes) {
      *reinterpret_cast<unsigned char*>(at) = static_cast<unsigned char>(at >> 7);
      *reinterpret_cast<unsigned char*>(at + bytes - 1) = static_cast<unsigned char>(at >> 7);
    };
    const auto drop = [&](auto it) {
      const auto [at, block] = *it;
      ASSERT_EQ(*reinterpret_cast<unsigned char*>(at), static_cast<unsigned char>(at >> 7));
      ASSERT_EQ(*reinterpret_cast<unsigned char*>(at + block.first - 1),
                static_cast<unsigned char>(at >> 7));
      if (random() % 4 == 0) {
        pool->DeallocateUnsized(reinterpret_cast<void*>(at));
      } else {
        pool->Deallocate(reinterpret_cast<void*>(at), block.first, block.second);
      }
      live_bytes -= block.first;
      live.erase(it);
    };
    for (int step = 0; step < 20'000; ++step) {
      if (live_bytes > 48 * kMiB || (!live.empty() && random() % 2 == 0)) {
        auto it = live.lower_bound(live.begin()->first + random() % (256 * kMiB));
        drop(it == live.end() ? live.begin() : it);
        continue;
      }
      const std::size_t bytes = 1 + random() % (std::size_t{1} << random() % 24);
      const std::size_t alignment =
          random() % 8 == 0 ? std::size_t{1} << random() % 22 : MemoryResource::kMinAlignment;
      const auto at = reinterpret_cast<std::uintptr_t>(pool->Allocate(bytes, alignment).value());
      ASSERT_EQ(at % std::max(alignment, MemoryResource::kMinAlignment), 0u);
      const auto next = live.lower_bound(at);
      if (next != live.end()) {
        ASSERT_LE(at + bytes, next->first);
      }
      if (next != live.begin()) {
        const auto before = std::prev(next);
        ASSERT_LE(before->first + before->second.first, at);
      }
      stamp(at, bytes);
      live.emplace(at, std::pair(bytes, alignment));
      live_bytes += bytes;
    }
    while (!live.empty()) drop(live.begin());
    EXPECT_EQ(pool->statistics().live_bytes, 0);
    pool->Trim();
    EXPECT_EQ(pool->statistics().held_bytes, 0) << "all was joined again";
  }
}

}  // namespace
}  // namespace ait
