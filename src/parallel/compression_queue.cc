// SPDX-License-Identifier: Apache-2.0
#include "parallel/compression_queue_internal.h"

#include <utility>

#include "comm/own_thread.h"
#include "parallel/compression_wire_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0::internal {

CompressionQueue::~CompressionQueue() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Work CompressionQueue::Push(const GradientBucket& bucket, OperationOptions options,
                            CompressionCounters* counters) {
  if (!thread_.joinable()) {
    StatusOr<std::thread> thread = StartOwnThread(
        StrCat("the gradient compression of rank ", communicator_.rank()), [this] { Run(); });
    if (!thread.ok()) return Work(thread.status());
    thread_ = *std::move(thread);
  }
  auto work = std::make_shared<WorkState>();
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back({bucket, std::move(options), counters, work});
  }
  changed_.notify_one();
  return Work(work);
}

void CompressionQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task.work->MarkStarted();
    Status status = failed_.ok() ? CatchAsStatus([&] { return Reduce(task); })
                                 : AbortedError("an earlier bucket failed: ", Message(failed_));
    if (!status.ok() && failed_.ok()) {
      failed_ = status;
      communicator_.Abort(status);
    }
    task.work->Finish(std::move(status));
    lock.lock();
  }
}

Status CompressionQueue::Reduce(const Task& task) {
  const std::int64_t ranks = communicator_.size().value();
  task.counters->exact_sent_bytes += 2 * task.bucket.values.bytes().value() * (ranks - 1) / ranks;
  if (task.bucket.values.dtype == DType::kFloat32) {
    return compression_.Reduce(task.bucket, communicator_, task.options, *task.counters);
  }
  Wire wire(communicator_, task.options, *task.counters);
  return wire.AllReduceSum(task.bucket.values).Wait();
}

}  // namespace ait::inline v0::internal
