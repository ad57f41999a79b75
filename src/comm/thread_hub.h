// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_THREAD_HUB_H_
#define AIT_COMM_THREAD_HUB_H_

// Where the ranks of a thread group meet: everything they share, behind one mutex.
//
// Every rank has a seat and one thread, which runs `Run`. A collective is a meeting: each rank
// arrives with its operation; the last one compares them and the meeting runs; each rank does its
// part without the mutex; the rank that is last done ends the operations of all, and those that
// have more to do arrive at the next meeting. Messages (send and receive) are matched when they are
// started and copied by the thread of the receiver, whatever its collectives do.
//
// A meeting that runs always ends well: deadlines, `Abort`, `Cancel` and leaving break only what
// still waits for somebody. So nobody's memory is touched after its operation has ended.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

class ThreadHub : public std::enable_shared_from_this<ThreadHub> {
 public:
  explicit ThreadHub(WorldSize size);

  WorldSize size() const { return WorldSize(static_cast<int>(seats_.size())); }

  /// Takes an operation of `rank`; its thread will carry it out.
  Work Start(Rank rank, Operation operation);

  /// **Blocks.** The life of the thread of `rank`: until `Leave`, and until no peer uses its
  /// memory.
  void Run(Rank rank);

  /// This rank goes: what it has in flight ends with Aborted, what others want of it with
  /// Unavailable.
  void Leave(Rank rank);

  /// Breaks the group with Aborted and the text of `reason`.
  void Abort(const Status& reason);

  /// A hub of those ranks that are left, in order.
  struct Survived {
    std::shared_ptr<ThreadHub> hub;
    std::vector<Rank> members;
  };
  /// **Collective. Blocks.** Over the ranks that have not left; all get the same.
  StatusOr<Survived> Survivors(Rank rank, Deadline deadline);

  /// The hub of a subgroup: the same object for all members that give the same `id`.
  StatusOr<std::shared_ptr<ThreadHub>> Subgroup(WorldSize size, std::uint64_t id);

 private:
  struct Task {
    Operation operation;
    std::shared_ptr<WorkState> work;
    Rank rank;
    bool cancelled = false;
  };
  struct Ended {
    std::shared_ptr<WorkState> work;
    Status status;
  };
  struct Delivery {
    Task send;
    Task receive;
  };
  struct Seat {
    std::optional<Task> current;      // the collective that has arrived at the meeting
    std::deque<Task> waiting;         // those behind it
    bool part_done = false;           // of the current one
    std::optional<Operation> last;    // the last collective that ended
    std::deque<Delivery> deliveries;  // messages to copy by this rank
    int lent = 0;                     // messages of this rank that others copy
    bool told = false;                // a collective of this rank has met the loss of a peer
    bool leaving = false;
    bool rebuilding = false;          // waits in `Survivors`
    bool asked = false;               // has called it
    std::optional<Survived> rebuilt;  // what it gets
    std::atomic<std::uint64_t> changes{0};
    std::condition_variable changed;
  };
  struct Meeting {
    std::vector<const Operation*> operations;  // by rank; null until it has arrived
    int arrived = 0;
    bool running = false;
    int parts_done = 0;
  };
  using Lane = std::tuple<int, int, std::uint32_t>;  // source, destination, tag

  // All of these are called with the mutex held; those with a lock release it for a while.
  Seat& SeatOf(Rank rank) { return *seats_[static_cast<std::size_t>(rank.value())]; }
  void Notify(Seat& seat);
  void NotifyAll();
  void Arrive(Rank rank);
  void Break(Status reason, std::optional<Rank> gone = std::nullopt);
  Status FailureOf(const Task& task, bool was_current);
  std::string MissingText() const;
  void StartMessage(Task task, std::vector<Ended>& ended);
  bool Progress(Rank rank, std::unique_lock<std::mutex>& lock, std::vector<Ended>& ended);
  void EndMessages(Rank rank, std::vector<Ended>& ended);
  void BreakIfExpired(Rank rank);
  void EndBroken(Rank rank, std::vector<Ended>& ended);
  void Deliver(Rank rank, std::unique_lock<std::mutex>& lock, std::vector<Ended>& ended);
  void Complete(std::vector<Ended>& ended);
  void Cancel(Rank rank, const WorkState* work);
  void Rebuild();
  Deadline NextDeadline(Rank rank);
  void Sleep(Rank rank, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable rebuilt_;  // somebody gets what `Survivors` made
  std::vector<std::unique_ptr<Seat>> seats_;
  Meeting meeting_;
  std::map<Lane, std::deque<Task>> lanes_;  // unmatched messages; a lane holds one kind
  std::optional<Status> broken_;            // why, once the group is
  std::optional<Rank> gone_;                // whose leaving broke it
  std::map<std::uint64_t, std::pair<std::shared_ptr<ThreadHub>, int>> children_;  // and joins left
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_THREAD_HUB_H_
