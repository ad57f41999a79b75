// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_FORK_LOCKS_INTERNAL_H_
#define AIT_MEMORY_FORK_LOCKS_INTERNAL_H_

// Locks across fork. A lock that another thread holds at the moment of a fork would stay locked in
// the child for ever, over books in the middle of a change. So while the process forks, all locks of
// all objects that are entered here are held, and released on both sides.
//
// For objects with locks of their own kinds; one mutex is a `ForkSafeMutex`. These are taken after
// all of those, and waited for: whoever holds one waits for no other lock.

namespace ait::inline v0::internal {

/// Makes sure that forks are watched, by the handlers of "fork_safe_mutex.h".
void WatchForks();

class ForkLocks {
 public:
  ForkLocks() = default;
  ForkLocks(const ForkLocks&) = delete;
  ForkLocks& operator=(const ForkLocks&) = delete;
  virtual ~ForkLocks() = default;

  /// Takes all locks of the object. They must not be held while an object is entered or left.
  virtual void LockAll() = 0;
  virtual void UnlockAll() = 0;

  /// Of all objects, for those handlers.
  static void LockEach();
  static void UnlockEach();

 protected:
  /// The last thing of the most derived constructor.
  void Enter();
  /// The first thing of its destructor.
  void Leave();

 private:
  friend class ForkRegistry;
  ForkLocks* next_ = nullptr;
  ForkLocks* previous_ = nullptr;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_FORK_LOCKS_INTERNAL_H_
