// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_READ_POOL_INTERNAL_H_
#define AIT_DATA_STORAGE_READ_POOL_INTERNAL_H_

// Threads that read, shared by the objects and streams of a storage.

#include <cstddef>
#include <functional>
#include <memory>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** All calls may come from any thread. A forked child may only destroy it.
class ReadPool {
 public:
  explicit ReadPool(int threads);
  /// Waits for the tasks that have begun; drops the others. Not from a task.
  ~ReadPool();
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;

  std::size_t limit() const { return limit_; }
  /// Runs `task` on one of the threads, in order of submission; starts one if all are busy. A task
  /// waits for nothing but its input. **Errors.** ResourceExhausted: there is no thread at all.
  Status Submit(std::function<void()> task);

 private:
  struct State;

  const std::size_t limit_;
  const int forks_;
  std::unique_ptr<State> state_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_STORAGE_READ_POOL_INTERNAL_H_
