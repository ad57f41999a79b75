// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_PAIR_MESSAGES_H_
#define AIT_COMM_PAIR_MESSAGES_H_

// Send and Receive, which are independent of the order of collectives.
//
// The sender offers a message; the receiver accepts it when a receive of that tag is there, after
// it has posted the memory, or refuses it if the two do not fit; then the bytes move. So a message
// that is given up on one side leaves nothing behind on the other, and a wrong size is an error on
// both. A thread a peer, started with the first message to or from it, reads offers and answers.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "comm/pair_link.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

class PairMessages {
 public:
  /// `who_broke(peer, text)` tells why the connection to `peer` broke; it may wait.
  PairMessages(PairLink& link, Rank rank, WorldSize size,
               std::function<Status(int peer, const Status& error)> who_broke);
  ~PairMessages() = default;

  /// **Blocks.** Until the threads have ended; the link was interrupted before. The last call.
  void Stop();

  /// `owner` keeps this alive; a message that is cancelled holds it meanwhile.
  Work Start(Operation operation, std::weak_ptr<void> owner);
  /// Ends what is in flight, and what comes, with `reason`. Waits for nobody.
  void Fail(const Status& reason);
  /// Ends messages whose deadline has come.
  void Check(Time now);
  /// True while a message is in flight.
  bool busy() const;

 private:
  enum class ControlType : std::uint8_t { kOffer = 1, kAccept, kRefuse, kWithdraw };
  struct Control {
    ControlType type{};
    DType dtype{};
    std::uint32_t tag = 0;
    std::uint64_t id = 0;  // counted by the sender of the message
    std::int64_t count = 0;
    std::uint64_t received = 0;  // how many controls of the other side have come
  };
  /// A message that this rank sends or receives.
  struct Message {
    Operation operation;
    std::shared_ptr<WorkState> state;
    std::uint64_t id = 0;  // once it is known
    PairLink::PiecePtr payload;
    /// A waiter has it: its memory is in the engine's hands, so only the waiter may end it.
    bool moving = false;
    bool over = false;
    Status ending;  // told to the waiter: end it with this
  };
  using MessagePtr = std::shared_ptr<Message>;
  struct Peer {
    int rank = 0;
    std::uint64_t next_id = 1;
    std::map<std::uint64_t, MessagePtr> sends;                 // not yet done
    std::map<std::uint32_t, std::deque<MessagePtr>> receives;  // not yet matched, by tag
    std::map<std::uint64_t, MessagePtr> accepted;              // receives under way
    std::map<std::uint32_t, std::deque<Control>> offers;       // not yet matched, by tag
    /// Sent, and kept for the engine until the other side says that it has them; they arrive in order.
    std::deque<std::pair<std::unique_ptr<Control>, PairLink::PiecePtr>> controls;
    std::uint64_t received = 0;
    std::uint64_t released = 0;  // of what was sent
    Status gone;
    std::thread reader;
  };
  /// What to finish once the lock is released.
  using Endings = std::vector<std::pair<MessagePtr, Status>>;

  StatusOr<Peer*> PeerOf(int rank);
  void Read(Peer& peer);
  void Handle(Peer& peer, const Control& control, Endings& endings);
  void Match(Peer& peer, const MessagePtr& receive, const Control& offer, Endings& endings);
  void SendControl(Peer& peer, Control control);
  void AwaitPayload(Peer& peer, const MessagePtr& message, Endings& endings);
  void RunWaiter();
  void Withdraw(Peer& peer, const MessagePtr& message, const Status& why, Endings& endings);
  void End(const MessagePtr& message, const Status& why, Endings& endings);
  void EndAll(Peer& peer, const Status& reason, Endings& endings);
  Status Say(const Message& message, const Status& status) const;
  void Finish(Endings& endings);

  PairLink& link_;
  const int rank_;
  const std::function<Status(int, const Status&)> who_broke_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null until used
  Status failed_;
  bool stopping_ = false;

  // Threads that wait for payloads: as many as there are at a time, up to a limit.
  std::condition_variable payload_came_;
  std::deque<std::pair<Peer*, MessagePtr>> payloads_;
  std::vector<std::thread> waiters_;
  std::size_t idle_waiters_ = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_PAIR_MESSAGES_H_
