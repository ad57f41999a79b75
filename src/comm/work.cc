// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/work.h"

#include <thread>
#include <utility>

#include "ait/comm/flight_recorder.h"
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
  std::function<void()> cancel;  // destroyed outside of the lock: they may own things
  std::shared_ptr<FlightGroup> group;
  {
    std::lock_guard lock(mutex_);
    if (done()) return false;
    times_.finished = SystemClock().now();
    group.swap(group_);
    if (group != nullptr)
      status = group->End(number_, std::move(status), times_.started, times_.finished);
    status_ = std::move(status);
    callbacks.swap(callbacks_);
    cancel.swap(cancel_);
    done_.store(true, std::memory_order_release);
    ended_.notify_all();
  }
  for (const auto& callback : callbacks) callback(status_);  // final: nobody writes it any more
  return true;
}

void WorkState::RecordIn(std::shared_ptr<FlightGroup> group, std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (done()) {
    // Too late to change what was said.
    group->End(number, status_, times_.started, times_.finished).IgnoreError();
    return;
  }
  group_ = std::move(group);
  number_ = number;
}

void WorkState::OnCancel(std::function<void()> hook) {
  std::lock_guard lock(mutex_);
  if (!done()) cancel_ = std::move(hook);
}

Status WorkState::Wait(Deadline deadline) {
  if (!done()) {
    if (const std::shared_ptr<WorkHelper> helper = helper_.lock()) helper->Help(*this, deadline);
  }
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

bool Work::done() const { return state_ == nullptr || state_->done(); }
Status Work::Wait() const { return Wait(Deadline::Infinite()); }
Status Work::Wait(Deadline deadline) const {
  return state_ == nullptr ? status_ : state_->Wait(deadline);
}
void Work::Cancel() const {
  if (state_ != nullptr) state_->Cancel();
}
void Work::Then(std::function<void(const Status&)> callback) const {
  if (state_ == nullptr) return callback(status_);
  state_->Then(std::move(callback));
}
WorkTimes Work::times() const {
  if (state_ == nullptr) return {.issued = issued_, .finished = issued_};
  return state_->times();
}

void Work::RecordIn(const std::shared_ptr<FlightGroup>& group, std::uint64_t number, Time issued) {
  issued_ = issued;
  if (state_ != nullptr) return state_->RecordIn(group, number);
  status_ = group->End(number, std::move(status_), Time{}, Time{});
}

}  // namespace ait::inline v0
