// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COMPRESSION_QUEUE_INTERNAL_H_
#define AIT_PARALLEL_COMPRESSION_QUEUE_INTERNAL_H_

// Runs a `GradientCompression` on a thread of its own, bucket after bucket.
//
// A thread, not a chain of callbacks: callbacks run on the transport's thread, which then could not
// move data while it rounds, sorts or multiplies. A queue, since what all ranks call in the same
// order must not depend on when a bucket is ready: while a step has buckets on the way, only this
// thread issues collectives.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "ait/comm/communicator.h"
#include "ait/parallel/compression.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

class CompressionQueue {
 public:
  CompressionQueue(GradientCompression& compression, Communicator& communicator)
      : compression_(compression), communicator_(communicator) {}
  /// Ends the thread after what it is at. The owner has waited, or aborted the communicator.
  ~CompressionQueue();
  CompressionQueue(const CompressionQueue&) = delete;
  CompressionQueue& operator=(const CompressionQueue&) = delete;

  /// Reduces `bucket` after those pushed before. `counters` are complete when the work is done; so
  /// long they and the bucket stay where they are. A bucket that is not fp32 is all-reduced. After
  /// an error the communicator is aborted and everything later fails.
  Work Push(const GradientBucket& bucket, OperationOptions options, CompressionCounters* counters);

 private:
  struct Task {
    GradientBucket bucket;
    OperationOptions options;
    CompressionCounters* counters;
    std::shared_ptr<WorkState> work;
  };
  void Run();
  Status Reduce(const Task& task);

  GradientCompression& compression_;
  Communicator& communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stops_ = false;
  Status failed_;       // of the thread alone
  std::thread thread_;  // from the first Push on
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_COMPRESSION_QUEUE_INTERNAL_H_
