// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHM_ENGINE_H_
#define AIT_COMM_SHM_ENGINE_H_

// Who works, and when, for one rank of a shared-memory group.
//
// Nothing in shm_collective and shm_messages waits; somebody turns them. A thread that does so holds
// the wheel, and only one does: the caller of a small operation, for a moment; a thread that waits
// for a `Work`; else a thread of the engine. Whoever waits with nothing to do loads for a while, then
// yields, then sleeps on the futex of the group, looking for deadlines and deaths in between.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "comm/shm_collective.h"
#include "comm/shm_group.h"
#include "comm/shm_messages.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

/// How many loads to wait with before the first yield. Where there are more ranks than cores, those
/// who are waited for need this core: loads that did not help become fewer, those that did, more.
class ShmPatience {
 public:
  int loads() const { return loads_; }
  /// What was waited for came after `turns` loads and yields.
  void CameAfter(int turns) {
    if (turns == 0) return;
    loads_ = turns < loads_ ? std::min(kMost, loads_ + 8) : std::max(kLeast, loads_ / 2);
  }

 private:
  static constexpr int kLeast = 4;
  static constexpr int kMost = 200;
  int loads_ = kMost;
};

class ShmEngine final : public WorkHelper, public std::enable_shared_from_this<ShmEngine> {
 public:
  explicit ShmEngine(std::shared_ptr<ShmGroup> group);

  ShmGroup& group() { return *group_; }

  Work Start(Operation operation);
  void Abort(const Status& reason);
  /// This rank goes: ends what is in flight and stops the thread.
  void Leave();
  void Help(const WorkState& state, Deadline deadline) override;

  /// For tests and benchmarks.
  void set_check_signatures(bool check) { collective_.set_check_signatures(check); }
  void set_phase_hook(std::function<void(ShmPhase)> hook) {
    collective_.set_phase_hook(std::move(hook));
  }

 private:
  using Ended = ShmMessages::Ended;
  enum class Patience { kWaiter, kBackground };
  struct Task {
    Operation operation;
    std::shared_ptr<WorkState> work;  // null while it runs within the call that started it
    bool cancelled = false;
  };

  // The wheel.
  bool TryTake() { return !taken_.exchange(true, std::memory_order_acquire); }
  void Release();
  // With the wheel.
  template <typename Enough>
  void Drive(Patience patience, Deadline deadline, const Enough& enough);
  template <typename Enough>
  void Turn(Patience patience, Deadline deadline, const Enough& enough);
  bool Step();
  bool StepCollective();
  void CheckFaults();
  Time QuietBy() const;
  Duration UntilNextFault();
  void Fail();
  void EndCurrent(Status status);
  void Deliver();
  std::shared_ptr<WorkState> MakeState();
  Status FailureOf(const Operation& operation, bool was_current, bool cancelled);
  std::string MissingText();

  bool HasWork();
  void WakeThread();
  void Poke();
  void Run();
  void Cancel(const std::shared_ptr<WorkState>& work);

  const std::shared_ptr<ShmGroup> group_;
  const int rank_;
  std::atomic<bool> taken_{false};
  std::atomic<std::thread::id> driver_{};  // who turns, where callbacks run
  std::atomic<int> helpers_{0};            // that want the wheel
  std::atomic<bool> dozing_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<int> queued_{0};     // operations and messages that wait in `incoming_`
  std::atomic<bool> busy_{false};  // something is unfinished

  // Belong to whoever holds the wheel.
  ShmPatience patience_;
  ShmCollective collective_;
  ShmMessages messages_;
  std::optional<Task> current_;
  std::deque<Task> waiting_;
  std::vector<Ended> ended_;
  std::optional<Time> described_;  // when a mismatch was seen
  std::optional<Time> broken_at_;  // when this rank saw that the group is broken
  bool told_ = false;              // an operation has been told of a loss
  bool over_ = false;              // the group is broken and this rank has ended what it had
  bool started_ = false;           // the current operation has met

  std::mutex mutex_;
  std::deque<Task> incoming_;
  std::vector<std::shared_ptr<WorkState>> cancelled_;
  std::condition_variable changed_;  // the wheel is free, or something has ended
  std::condition_variable wake_;     // of the thread
  std::thread thread_;
  bool asleep_ = false;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SHM_ENGINE_H_
