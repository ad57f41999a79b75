// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/work.h"

#include <thread>
#include <utility>

#include "comm/work_internal.h"

namespace ait::inline v0 {
namespace internal {

WorkState::WorkState() { times_.issued = SystemClock().now(); }

void WorkState::MarkStarted() {
  std::lock_guard lock(mutex_);
  if (times_.started == Time{}) times_.started = SystemClock().now();
}

bool WorkState::Finish(Status status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  std::function<void()> cancel;  // destroyed outside of the lock: it may own things
  {
    std::lock_guard lock(mutex_);
    if (done()) return false;
    status_ = std::move(status);
    times_.finished = SystemClock().now();
    callbacks.swap(callbacks_);
    cancel.swap(cancel_);
    done_.store(true, std::memory_order_release);
    ended_.notify_all();
  }
  for (const auto& callback : callbacks) callback(status_);  // final: nobody writes it any more
  return true;
}

void WorkState::OnCancel(std::function<void()> hook) {
  std::lock_guard lock(mutex_);
  if (!done()) cancel_ = std::move(hook);
}

Status WorkState::Wait(Deadline deadline) {
  constexpr int kYields = 20;  // a small operation is often over before a thread could sleep
  for (int i = 0; i < kYields && !done(); ++i) std::this_thread::yield();
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return done(); };
  if (deadline.is_infinite()) {
    ended_.wait(lock, ended);
  } else if (!ended_.wait_until(lock, deadline.time(), ended)) {
    return DeadlineExceededError(
        "the operation has not ended by the deadline of the wait; it goes on");
  }
  return status_;
}

void WorkState::Cancel() {
  std::function<void()> cancel;
  {
    std::lock_guard lock(mutex_);
    cancel.swap(cancel_);
  }
  if (cancel) cancel();
}

void WorkState::Then(std::function<void(const Status&)> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(status_);
}

WorkTimes WorkState::times() const {
  std::lock_guard lock(mutex_);
  return times_;
}

}  // namespace internal

Work::Work(Status status) : state_(std::make_shared<internal::WorkState>()) {
  state_->Finish(std::move(status));
}

bool Work::done() const { return state_->done(); }
Status Work::Wait() const { return state_->Wait(Deadline::Infinite()); }
Status Work::Wait(Deadline deadline) const { return state_->Wait(deadline); }
void Work::Cancel() const { state_->Cancel(); }
void Work::Then(std::function<void(const Status&)> callback) const {
  state_->Then(std::move(callback));
}
WorkTimes Work::times() const { return state_->times(); }

}  // namespace ait::inline v0
