// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_FORK_SAFE_MUTEX_H_
#define AIT_MEMORY_FORK_SAFE_MUTEX_H_

// A mutex that a forked child finds free, and what it guards whole.
//
// A fork copies the calling thread alone. A lock that another thread held at that moment stays
// locked in the child for ever, and what it guards is half changed. This mutex is taken by the
// forking thread before the fork and released after it in both processes, as malloc does with its
// own locks. All resources of ait use it, so a child can allocate; a resource of your own should.
//
//   mutable ForkSafeMutex mutex_;
//   ...
//   const std::lock_guard lock(mutex_);
//
// Locking costs what std::mutex costs. Making and destroying one takes a lock of the process. Do
// not fork while the calling thread itself holds one. `fork()` is what is meant; vfork, posix_spawn
// and a raw clone need nothing of this, since they do not run this code in the child.

#include <mutex>

namespace ait::inline v0 {

class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;
  ~ForkSafeMutex();

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  /// How many forks lie between this process and the first one that made such a mutex. An object
  /// that remembers it knows without a system call whether it is in a forked child.
  static int forks();

 private:
  friend struct ForkSafeMutexes;

  std::mutex mutex_;
  ForkSafeMutex* next_ = nullptr;  // of all that there are
  ForkSafeMutex* previous_ = nullptr;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_FORK_SAFE_MUTEX_H_
