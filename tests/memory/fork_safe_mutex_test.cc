// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/fork_safe_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace ait {
namespace {

/// What a child found, as its exit code; 255 if it did not end within ten seconds.
template <typename Function>
int InChild(Function function) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(function());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST(ForkSafeMutex, IsAMutex) {
  ForkSafeMutex mutex;
  mutex.lock();
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(ForkSafeMutex, IsFreeInAChildAndWhatItGuardsIsWholeThough) {
  ForkSafeMutex outer;
  ForkSafeMutex inner;
  int a = 0;
  int b = 0;
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const std::lock_guard first(outer);
        ++a;
        const std::lock_guard second(inner);
        ++b;
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(InChild([&] {
                const std::lock_guard first(outer);
                const std::lock_guard second(inner);
                return a == b ? 7 : 1;
              }),
              7);
  }
  stop = true;
}

TEST(ForkSafeMutex, ThreadsMayMakeAndDestroySomeWhileAnotherForks) {
  ForkSafeMutex outer;
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const std::lock_guard lock(outer);
        const auto made = std::make_unique<ForkSafeMutex>();
        const std::lock_guard its_lock(*made);
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(InChild([&] {
                ForkSafeMutex made;
                return outer.try_lock() && made.try_lock() ? 7 : 1;
              }),
              7);
  }
  stop = true;
}

TEST(ForkSafeMutex, CountsForksInTheChildAlone) {
  const int before = ForkSafeMutex::forks();
  const ForkSafeMutex mutex;
  EXPECT_EQ(InChild([&] {
              const int grandchild = InChild([&] { return ForkSafeMutex::forks() - before; });
              return (ForkSafeMutex::forks() - before) * 16 + grandchild;
            }),
            0x12);
  EXPECT_EQ(ForkSafeMutex::forks(), before);
}

}  // namespace
}  // namespace ait
