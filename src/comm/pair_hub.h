// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_PAIR_HUB_H_
#define AIT_COMM_PAIR_HUB_H_

// What all groups of a process share: the control plane, and a thread that looks after them.
//
// Departures reach every group at once, on the store's thread. The hub has two threads. One, which
// sleeps while nothing is in flight, looks every 50 ms whether an operation is stuck or past its
// deadline; it never waits, so that every deadline is kept. The other writes to the store what a
// group has to say to its peers, and reads there why an operation is stuck; it waits as long as a
// store that hangs makes it.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/tcp_store.h"

namespace ait::inline v0::internal {

/// What the hub wants of a group.
class PairMember {
 public:
  virtual ~PairMember() = default;
  /// A rank of the world died. On the store's thread: does not wait.
  virtual void RankDied(Rank world_rank) = 0;
  /// Looks at what is in flight; false if nothing is. Does not wait.
  virtual bool Check(Time now) = 0;
  /// Asks the store why an operation is stuck, after `PairHub::AskDiagnosis`. May wait.
  virtual void Diagnose() = 0;
};

class PairHub {
 public:
  /// **Errors.** ResourceExhausted: no threads.
  static StatusOr<std::shared_ptr<PairHub>> Create(std::shared_ptr<TcpStore> store);
  /// Writes what is still to be published.
  ~PairHub();

  void Add(std::weak_ptr<PairMember> member);

  /// Something is in flight now. Cheap if the thread is awake.
  void Wake() {
    if (!awake_) WakeThread();
  }

  /// Sets `key` in the store, soon.
  void Publish(std::string key, std::string value);

  /// Calls `member->Diagnose()`, soon, on the thread that may wait.
  void AskDiagnosis(std::weak_ptr<PairMember> member);

  TcpStore& store() const { return *store_; }

 private:
  explicit PairHub(std::shared_ptr<TcpStore> store) : store_(std::move(store)) {}
  void Watch();
  void UseStore();
  bool CheckAll();
  void WakeThread();
  std::vector<std::shared_ptr<PairMember>> Members();

  std::shared_ptr<TcpStore> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> awake_{false};
  bool wanted_ = false;
  bool stopping_ = false;
  std::vector<std::weak_ptr<PairMember>> members_;
  std::deque<std::pair<std::string, std::string>> publications_;
  std::deque<std::weak_ptr<PairMember>> diagnoses_;
  std::thread watcher_, store_user_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_PAIR_HUB_H_
