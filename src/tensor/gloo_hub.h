// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_GLOO_HUB_H_
#define AIT_TENSOR_GLOO_HUB_H_

// What all groups of a process share: the control plane, and a thread that looks after them.
//
// Departures reach every group at once, on the store's thread. The hub's own thread, which sleeps
// while nothing is in flight, looks every 50 ms whether an operation is stuck or past its deadline,
// and writes to the store what a group has to say to its peers.

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
#include "ait/base/types.h"
#include "ait/comm/tcp_store.h"

namespace ait::inline v0::internal {

/// What the hub wants of a group.
class GlooMember {
 public:
  virtual ~GlooMember() = default;
  /// A rank of the world died. On the store's thread: does not wait.
  virtual void RankDied(Rank world_rank) = 0;
  /// Looks at what is in flight; false if nothing is. May wait.
  virtual bool Check(Time now) = 0;
};

class GlooHub {
 public:
  explicit GlooHub(std::shared_ptr<TcpStore> store);
  /// Writes what is still to be published.
  ~GlooHub();

  void Add(std::weak_ptr<GlooMember> member);

  /// Something is in flight now. Cheap if the thread is awake.
  void Wake() {
    if (!awake_) WakeThread();
  }

  /// Sets `key` in the store, soon, on the hub's thread.
  void Publish(std::string key, std::string value);

  TcpStore& store() const { return *store_; }

 private:
  void Run();
  bool CheckAll();
  void WakeThread();
  std::vector<std::shared_ptr<GlooMember>> Members();

  std::shared_ptr<TcpStore> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> awake_{false};
  bool wanted_ = false;
  bool stopping_ = false;
  std::vector<std::weak_ptr<GlooMember>> members_;
  std::deque<std::pair<std::string, std::string>> publications_;
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_GLOO_HUB_H_
