// SPDX-License-Identifier: Apache-2.0
#include "memory/fork_locks_internal.h"

#include <mutex>

namespace ait::inline v0::internal {

/// The objects of this process, the newest first: one that stands on another is locked before it.
/// Usable before main and until the very end of the process: it has no destructor to run.
class ForkRegistry {
 public:
  static void Enter(ForkLocks* object) {
    WatchForks();
    const std::lock_guard lock(mutex_);
    object->next_ = first_;
    if (first_ != nullptr) first_->previous_ = object;
    first_ = object;
  }

  static void Leave(ForkLocks* object) {
    const std::lock_guard lock(mutex_);
    (object->previous_ != nullptr ? object->previous_->next_ : first_) = object->next_;
    if (object->next_ != nullptr) object->next_->previous_ = object->previous_;
  }

  static void LockEach() {
    mutex_.lock();
    for (ForkLocks* object = first_; object != nullptr; object = object->next_) object->LockAll();
  }
  static void UnlockEach() {
    for (ForkLocks* object = first_; object != nullptr; object = object->next_) object->UnlockAll();
    mutex_.unlock();
  }

 private:
  static constinit inline std::mutex mutex_;
  static constinit inline ForkLocks* first_ = nullptr;
};

void ForkLocks::Enter() { ForkRegistry::Enter(this); }
void ForkLocks::Leave() { ForkRegistry::Leave(this); }
void ForkLocks::LockEach() { ForkRegistry::LockEach(); }
void ForkLocks::UnlockEach() { ForkRegistry::UnlockEach(); }

}  // namespace ait::inline v0::internal
