// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/signal_mask.h"
#include "parallel/copy_job_internal.h"

namespace ait::inline v0::internal {
namespace {

// Small enough to share, large enough that sharing costs nothing.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

}  // namespace

void CopyJob::Add(void* to, const void* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kPieceBytes) {
    pieces_.push_back({static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at,
                       static_cast<std::size_t>(std::min(kPieceBytes, bytes - at))});
  }
}

void CopyJob::Help() {
  for (;;) {
    const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces_.size()) return;
    CopyBytes(pieces_[i].to, pieces_[i].from, pieces_[i].bytes, stores_);
    AddDone(1);
  }
}

void CopyJob::AddDone(std::size_t count) {
  if (done_.fetch_add(count, std::memory_order_acq_rel) + count == pieces_.size()) {
    done_.notify_all();
  }
}

void CopyJob::WaitForOthers() const {
  for (;;) {
    const std::size_t done = done_.load(std::memory_order_acquire);
    if (done == pieces_.size()) return;
    done_.wait(done, std::memory_order_acquire);
  }
}

void CopyJob::Wait() {
  Help();
  WaitForOthers();
}

void CopyJob::Cancel() {
  const std::size_t begun = std::min(next_.exchange(pieces_.size()), pieces_.size());
  if (begun < pieces_.size()) AddDone(pieces_.size() - begun);
  WaitForOthers();
}

StatusOr<std::unique_ptr<CopyThread>> CopyThread::Start() {
  auto thread = std::unique_ptr<CopyThread>(new CopyThread);
  try {
    const BlockedSignals blocked;
    thread->thread_ = std::thread([self = thread.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return ResourceExhaustedError("the thread that gathers ahead could not be started: ",
                                  error.what(), "; allow more threads, or set prefetch to 0");
  }
  pthread_setname_np(thread->thread_.native_handle(), "ait-gather");
  return thread;
}

CopyThread::~CopyThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void CopyThread::Push(std::shared_ptr<CopyJob> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void CopyThread::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const std::shared_ptr<CopyJob> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job->Help();
    lock.lock();
  }
}

}  // namespace ait::inline v0::internal
