// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COPY_JOB_INTERNAL_H_
#define AIT_PARALLEL_COPY_JOB_INTERNAL_H_

// Copies that a thread makes ahead, and that whoever needs them helps to end.
//
//   auto job = std::make_shared<CopyJob>();
//   job->Add(block, shard, bytes);
//   thread.Push(job);          // …
//   job->Wait();

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ait/base/status.h"
#include "comm/reduce.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** After the last `Add`, any thread.
class CopyJob {
 public:
  explicit CopyJob(Stores stores = Stores::kCached) : stores_(stores) {}

  void Add(void* to, const void* from, std::int64_t bytes);

  /// Makes the copies that nobody has begun.
  void Help();
  /// **Blocks.** Helps, and waits for the copies that others have begun.
  void Wait();
  /// **Blocks.** Gives up the copies that nobody has begun, and waits for the others.
  void Cancel();

  bool done() const { return done_.load(std::memory_order_acquire) == pieces_.size(); }

 private:
  struct Piece {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  void AddDone(std::size_t count);
  void WaitForOthers() const;

  const Stores stores_;
  std::vector<Piece> pieces_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::size_t> done_ = 0;
};

/// A thread that works off jobs in order.
class CopyThread {
 public:
  /// **Errors.** ResourceExhausted: the system has no thread to give.
  static StatusOr<std::unique_ptr<CopyThread>> Start();
  /// Leaves what has not begun undone.
  ~CopyThread();

  void Push(std::shared_ptr<CopyJob> job);

 private:
  CopyThread() = default;
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<CopyJob>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_COPY_JOB_INTERNAL_H_
