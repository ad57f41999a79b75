// SPDX-License-Identifier: Apache-2.0
#include "memory/fork_locks_internal.h"

#include <pthread.h>

#include <mutex>

namespace ait::inline v0::internal {

/// The objects of this process, the newest first: one that stands on another is locked before it.
/// Usable before main and until the very end of the process: it has no destructor to run.
class ForkRegistry {
 public:
  static void Enter(ForkLocks* object) {
    const std::lock_guard lock(mutex_);
    if (!watching_) watching_ = pthread_atfork(&Prepare, &Resume, &Resume) == 0;
    object->next_ = first_;
    if (first_ != nullptr) first_->previous_ = object;
    first_ = object;
  }

  static void Leave(ForkLocks* object) {
    const std::lock_guard lock(mutex_);
    (object->previous_ != nullptr ? object->previous_->next_ : first_) = object->next_;
    if (object->next_ != nullptr) object->next_->previous_ = object->previous_;
  }

 private:
  static void Prepare() {
    mutex_.lock();
    for (ForkLocks* object = first_; object != nullptr; object = object->next_) object->LockAll();
  }
  static void Resume() {
    for (ForkLocks* object = first_; object != nullptr; object = object->next_) object->UnlockAll();
    mutex_.unlock();
  }

  static constinit inline std::mutex mutex_;
  static constinit inline ForkLocks* first_ = nullptr;
  static constinit inline bool watching_ = false;
};

void ForkLocks::Enter() { ForkRegistry::Enter(this); }
void ForkLocks::Leave() { ForkRegistry::Leave(this); }

}  // namespace ait::inline v0::internal
