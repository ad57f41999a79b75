// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_WORK_H_
#define AIT_COMM_WORK_H_

// `Work`: the handle of an operation that runs while the caller goes on.
//
//   Work work = communicator->AllReduce(bucket, ReduceOp::kSum, {.label = "bucket 3"});
//   …                                    // compute meanwhile
//   AIT_RETURN_IF_ERROR(work.Wait());    // everything the peers wrote is visible after this
//
// Every operation ends: done, failed, cancelled or past its deadline, and `Wait` then returns its
// Status. A handle is cheap to copy; all copies are the same operation. Dropping the last one
// neither waits nor cancels. Errors of an operation that was refused at the call (a bad argument)
// arrive here too.
//
// **Thread-safety.** All members may be called from any thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "ait/base/clock.h"
#include "ait/base/status.h"

namespace ait::inline v0 {

class Communicator;
class FlightGroup;

namespace internal {
class WorkState;
}

/// When an operation was issued, began to move data, and ended. A time is Time{} while it has not
/// come. One that was over when its call returned ended, for all that is known, when it was issued.
struct WorkTimes {
  Time issued{};
  Time started{};
  Time finished{};
};

class [[nodiscard]] Work {
 public:
  /// An operation that is already over, with `status`. Allocates nothing.
  explicit Work(Status status = OkStatus()) : status_(std::move(status)) {}
  explicit Work(std::shared_ptr<internal::WorkState> state) : state_(std::move(state)) {}

  /// True once the operation has ended. Everything it wrote is visible then.
  bool done() const;

  /// **Blocks.** Until the operation ends; returns its status.
  Status Wait() const;

  /// **Blocks.** Until the operation ends or `deadline` expires. DeadlineExceeded in the second
  /// case; the operation goes on.
  Status Wait(Deadline deadline) const;

  /// Asks the operation to end with Cancelled. A collective that only some ranks have finished
  /// cannot be undone, so cancelling one that has not ended aborts its communicator, on every rank.
  void Cancel() const;

  /// Calls `callback` once with the final status: at once, on this thread, if the operation has
  /// ended; else on the thread that ends it. The callback must be short and must not wait for other
  /// work.
  void Then(std::function<void(const Status&)> callback) const;

  WorkTimes times() const;

 private:
  friend class Communicator;
  /// Lets `group` note how the operation, its number `number`, ends.
  void RecordIn(const std::shared_ptr<FlightGroup>& group, std::uint64_t number, Time issued);

  Status status_;  // where there is no state
  Time issued_{};
  std::shared_ptr<internal::WorkState> state_;
};

/// Waits for all, and returns the first error in the order given.
template <typename Works>
Status WaitAll(const Works& works) {
  Status first;
  for (const Work& work : works) {
    Status status = work.Wait();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace ait::inline v0

#endif  // AIT_COMM_WORK_H_
