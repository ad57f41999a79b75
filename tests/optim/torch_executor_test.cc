// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/torch_executor.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

namespace ait {
namespace {

TEST(TorchExecutor, RunsPartsAtTheSameTimeOnTheThreadsOfLibtorch) {
  at::set_num_threads(2);
  const Executor executor = TorchExecutor();
  ASSERT_EQ(executor.threads, 2);
  // Each part waits for the other: a serial run would wait in vain.
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::thread::id> threads;
  std::atomic<int> met = 0;
  executor.run(2, [&](int) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    changed.notify_all();
    met += changed.wait_for(lock, std::chrono::seconds(30), [&] { return threads.size() == 2; });
  });
  EXPECT_EQ(met, 2);
}

TEST(TorchExecutor, RunsEachPartOnceAlsoIfThereAreFewerThreadsThanParts) {
  at::set_num_threads(2);
  const Executor executor = TorchExecutor();
  at::set_num_threads(1);
  std::atomic<int> calls[5] = {};
  executor.run(5, [&](int part) { ++calls[part]; });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
}

TEST(TorchExecutor, KeepsTheThreadOfEachPart) {
  at::set_num_threads(2);
  const Executor executor = TorchExecutor();
  std::thread::id first[2];
  executor.run(2, [&](int part) { first[part] = std::this_thread::get_id(); });
  for (int i = 0; i < 20; ++i) {
    std::thread::id now[2];
    executor.run(2, [&](int part) { now[part] = std::this_thread::get_id(); });
    EXPECT_EQ(now[0], first[0]);
    EXPECT_EQ(now[1], first[1]);
  }
}

}  // namespace
}  // namespace ait
