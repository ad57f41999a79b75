// SPDX-License-Identifier: Apache-2.0
#include "data/storage/read_pool_internal.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ait/memory/fork_safe_mutex.h"
#include "base/signal_mask.h"

namespace ait::inline v0::internal {

struct ReadPool::State {
  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      ++idle;
      changed.wait(lock, [this] { return ending || !tasks.empty(); });
      --idle;
      if (ending) return;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it holds is let go of without the lock
      lock.lock();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  std::vector<std::thread> threads;
  std::size_t idle = 0;
  bool ending = false;
};

ReadPool::ReadPool(int threads)
    : limit_(static_cast<std::size_t>(threads)),
      forks_(ForkSafeMutex::forks()),
      state_(std::make_unique<State>()) {}

ReadPool::~ReadPool() {
  if (forks_ != ForkSafeMutex::forks()) {
    static_cast<void>(state_.release());  // its threads are the parent's, its lock may be held
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->tasks.clear();
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

Status ReadPool::Submit(std::function<void()> task) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    if (state.tasks.size() >= state.idle && state.threads.size() < limit_) {
      const BlockedSignals blocked;
      try {
        state.threads.emplace_back([&state] { state.Run(); });
        pthread_setname_np(state.threads.back().native_handle(), "ait-read");
      } catch (const std::system_error& error) {
        if (state.threads.empty()) {
          return ResourceExhaustedError("no thread to read with: ", error.what());
        }
      }
    }
    state.tasks.push_back(std::move(task));
  }
  state.changed.notify_one();
  return OkStatus();
}

}  // namespace ait::inline v0::internal
