// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/fork_safe_mutex.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>

#include "memory/fork_locks_internal.h"

namespace ait::inline v0 {

/// All that there are. Never destroyed, so that resources may be freed after main returns.
struct ForkSafeMutexes {
  std::mutex mutex;
  ForkSafeMutex* first = nullptr;
  bool watches_forks = false;
  std::atomic<int> forks = 0;

  static void Watch();  // under its mutex
  static void Add(ForkSafeMutex* added);
  static void Remove(ForkSafeMutex* removed);
  static void LockAll();
  static void UnlockAll();
  static void UnlockAllInChild();
};

namespace {

constinit ForkSafeMutexes all;

}  // namespace

void ForkSafeMutexes::Watch() {
  if (all.watches_forks) return;
  all.watches_forks = pthread_atfork(&LockAll, &UnlockAll, &UnlockAllInChild) == 0;
}

void ForkSafeMutexes::Add(ForkSafeMutex* added) {
  const std::lock_guard lock(all.mutex);
  Watch();
  added->next_ = all.first;
  if (all.first != nullptr) all.first->previous_ = added;
  all.first = added;
}

void ForkSafeMutexes::Remove(ForkSafeMutex* removed) {
  const std::lock_guard lock(all.mutex);
  if (removed->next_ != nullptr) removed->next_->previous_ = removed->previous_;
  (removed->previous_ != nullptr ? removed->previous_->next_ : all.first) = removed->next_;
}

namespace {

/// Locks it if it is free, or becomes so very soon.
bool TryFor(ForkSafeMutex& mutex) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (mutex.try_lock()) return true;
    sched_yield();
  }
  return false;
}

}  // namespace

// Adaptors that lock may call others that do, in any order, and may make new mutexes meanwhile. So
// this does not wait for one while it holds others: where one stays taken it lets go of all, and
// begins again a little later (as std::lock does).
void ForkSafeMutexes::LockAll() {
  all.mutex.lock();
  ForkSafeMutex* at = all.first;
  while (at != nullptr) {
    if (TryFor(*at)) {
      at = at->next_;
      continue;
    }
    for (ForkSafeMutex* held = all.first; held != at; held = held->next_) held->unlock();
    all.mutex.unlock();
    // The mutex may be destroyed once the list is free, so it cannot be waited for.
    const timespec pause = {.tv_sec = 0, .tv_nsec = 20'000};
    nanosleep(&pause, nullptr);
    all.mutex.lock();
    at = all.first;
  }
  internal::ForkLocks::LockEach();
}

void ForkSafeMutexes::UnlockAll() {
  internal::ForkLocks::UnlockEach();
  for (ForkSafeMutex* held = all.first; held != nullptr; held = held->next_) held->unlock();
  all.mutex.unlock();
}

void ForkSafeMutexes::UnlockAllInChild() {
  all.forks.fetch_add(1, std::memory_order_relaxed);
  UnlockAll();
}

void internal::WatchForks() {
  const std::lock_guard lock(all.mutex);
  ForkSafeMutexes::Watch();
}

ForkSafeMutex::ForkSafeMutex() { ForkSafeMutexes::Add(this); }
ForkSafeMutex::~ForkSafeMutex() { ForkSafeMutexes::Remove(this); }
int ForkSafeMutex::forks() { return all.forks.load(std::memory_order_relaxed); }

}  // namespace ait::inline v0
