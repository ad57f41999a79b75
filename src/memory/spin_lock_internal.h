// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_SPIN_LOCK_INTERNAL_H_
#define AIT_MEMORY_SPIN_LOCK_INTERNAL_H_

// A lock for a few instructions, of one byte, which any thread may release.

#include <sched.h>

#include <atomic>

namespace ait::inline v0::internal {

class SpinLock {
 public:
  void lock() {
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire);) {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins % 64 == 0) sched_yield();  // its holder was preempted
      }
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_SPIN_LOCK_INTERNAL_H_
