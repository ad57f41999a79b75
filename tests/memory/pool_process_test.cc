// SPDX-License-Identifier: Apache-2.0
// Pools among threads, across fork, and at the end of the process.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/pool.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Destroyed after main, and after whatever was made later: at the end of the process their order is
// this one's opposite.
std::shared_ptr<PoolResource> pool_of_the_process = *PoolResource::Create();
HostBuffer buffer_of_the_process;

TEST(PoolAtExit, OutlivesTheBuffersOfTheProcess) {
  ASSERT_OK_AND_ASSIGN(buffer_of_the_process, HostBuffer::Create(pool_of_the_process, 3 * kMiB));
  thread_local HostBuffer buffer_of_the_thread;
  ASSERT_OK_AND_ASSIGN(buffer_of_the_thread, HostBuffer::Create(pool_of_the_process, 100));
}

std::size_t RandomSize(std::mt19937& random) {
  return 1 + random() % (std::size_t{1} << random() % 21);
}

TEST(PoolThreads, GiveBackWhatOthersTook) {
  const auto pool = *PoolResource::Create({.chunk_bytes = MiB(8)});
  struct Parcel {
    unsigned char* block;
    std::size_t bytes;
  };
  std::mutex mutex;
  std::deque<Parcel> parcels;
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 3000; ++i) {
      const std::size_t bytes = RandomSize(random);
      auto* const block = static_cast<unsigned char*>(pool->Allocate(bytes).value());
      block[0] = block[bytes - 1] = static_cast<unsigned char>(bytes);
      Parcel parcel = {};
      {
        const std::lock_guard lock(mutex);
        parcels.push_back({block, bytes});
        if (parcels.size() < 40) continue;
        std::swap(parcels[random() % parcels.size()], parcels.front());
        parcel = parcels.front();
        parcels.pop_front();
      }
      const auto mark = static_cast<unsigned char>(parcel.bytes);
      if (parcel.block[0] != mark || parcel.block[parcel.bytes - 1] != mark) ++wrong;
      pool->Deallocate(parcel.block, parcel.bytes);
      if (i % 500 == 0) pool->Trim();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  }
  for (const Parcel& parcel : parcels) pool->Deallocate(parcel.block, parcel.bytes);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool->statistics().live_bytes, 0);
  pool->Trim();
  EXPECT_EQ(pool->statistics().held_bytes, 0);
}

TEST(PoolThreads, ThatEndLeaveNothingBehind) {
  const auto pool = *PoolResource::Create();
  for (int i = 0; i < 200; ++i) {
    std::jthread([&] {
      const auto buffer = HostBuffer::Create(pool, 20 * kMiB);
      const auto small = HostBuffer::Create(pool, 3000);
    }).join();
  }
  EXPECT_EQ(pool->statistics().held_bytes, 64 << 20)
      << "what a thread kept at hand serves the threads after it";
  pool->Trim();
  EXPECT_EQ(pool->statistics().held_bytes, 0);
}

/// Forks `times` times while `threads` use the pool; the child must be able to go on.
void ForkWhile(PoolResource& pool, int threads, int times) {
  std::vector<std::jthread> others;
  for (int i = 0; i < threads; ++i) {
    others.emplace_back([&pool, i](const std::stop_token& stop) {
      std::mt19937 random(static_cast<unsigned>(i));
      while (!stop.stop_requested()) {
        const std::size_t bytes = RandomSize(random);
        void* const block = pool.Allocate(bytes).value();
        *static_cast<char*>(block) = 1;
        pool.Deallocate(block, bytes);
        if (random() % 64 == 0) pool.Trim();
      }
    });
  }
  const std::size_t kept_bytes = 2 * kMiB;
  auto* const kept = static_cast<char*>(pool.Allocate(kept_bytes).value());
  std::memset(kept, 42, kept_bytes);
  for (int i = 0; i < times; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a child that waits for a lock ends by this
      std::mt19937 random(7);
      bool right = kept[kept_bytes - 1] == 42;
      pool.Deallocate(kept, kept_bytes);
      for (int k = 0; k < 300; ++k) {
        const std::size_t bytes = RandomSize(random);
        const StatusOr<void*> block = pool.Allocate(bytes);
        right = right && block.ok();
        if (!block.ok()) break;
        std::memset(*block, k, bytes);
        pool.Deallocate(*block, bytes);
      }
      pool.Trim();
      const auto another = PoolResource::Create();
      right = right && another.ok() && HostBuffer::Create(*another, kMiB).ok();
      _exit(right ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << "state " << state;
  }
  EXPECT_EQ(kept[0], 42);
  pool.Deallocate(kept, kept_bytes);
}

TEST(PoolFork, TheChildGoesOn) {
  const auto pool = *PoolResource::Create({.chunk_bytes = MiB(8)});
  ForkWhile(*pool, 0, 2);
}

TEST(PoolFork, TheChildGoesOnWhateverOtherThreadsDid) {
  const auto pool = *PoolResource::Create({.chunk_bytes = MiB(8)});
  ForkWhile(*pool, 3, 60);
}

TEST(PoolFork, TheChildGoesOnWithAPoolOverAPool) {
  const auto below = *PoolResource::Create({.chunk_bytes = MiB(16)});
  const auto pool = *PoolResource::Create({.upstream = below, .chunk_bytes = MiB(4)});
  ForkWhile(*pool, 2, 30);
}

}  // namespace
}  // namespace ait
