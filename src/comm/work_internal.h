// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_WORK_INTERNAL_H_
#define AIT_COMM_WORK_INTERNAL_H_

// The state behind a `Work`, as transports see it.
//
//   auto state = std::make_shared<WorkState>();
//   state->OnCancel([weak = weak_from_this(), id] { … });    // optional
//   queue.push_back({std::move(operation), state});
//   return Work(state);
//   …                                       // later, on a thread of the transport:
//   state->MarkStarted();
//   state->Finish(status);                  // exactly once matters, more do no harm

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/comm/work.h"

namespace ait::inline v0::internal {

/// A transport whose operations can be carried out by the thread that waits for them: a waiting
/// thread that works saves two changes of threads.
class WorkHelper {
 public:
  virtual ~WorkHelper() = default;
  /// Works until the operation of `state` has ended or `deadline` has come; may return earlier.
  virtual void Help(const class WorkState& state, Deadline deadline) = 0;
};

/// **Thread-safety.** All members may be called from any thread.
class WorkState {
 public:
  WorkState();
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  // For transports.

  /// Notes that data begins to move.
  void MarkStarted();

  /// Ends the operation: wakes those who wait, then runs the callbacks on this thread. Call it
  /// without holding a lock that a callback could need. Only the first call counts; true for that
  /// one.
  bool Finish(Status status);

  /// What `Cancel` asks the transport to do; called at most once, on the thread that cancels, and
  /// only while the operation has not ended. It asks: the transport still calls `Finish`.
  void OnCancel(std::function<void()> hook);

  /// Lets `group` note how the operation ends; at once, if it has.
  void RecordIn(std::shared_ptr<FlightGroup> group, std::uint64_t number);

  /// Who helps when somebody waits. Before the operation is given to others.
  void SetHelper(std::weak_ptr<WorkHelper> helper) { helper_ = std::move(helper); }

  // For `Work`.

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// The final status if the operation ends before the deadline, else DeadlineExceeded.
  Status Wait(Deadline deadline);
  void Cancel();
  void Then(std::function<void(const Status&)> callback);
  WorkTimes times() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<bool> done_{false};
  Status status_;
  WorkTimes times_;
  std::shared_ptr<FlightGroup> group_;  // that notes the end, as `number_`
  std::uint64_t number_ = 0;
  std::function<void()> cancel_;
  std::weak_ptr<WorkHelper> helper_;
  std::vector<std::function<void(const Status&)>> callbacks_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_WORK_INTERNAL_H_
