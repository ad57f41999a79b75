// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_MESSAGES_H_
#define AIT_COMM_NCCL_MESSAGES_H_

// Send and Receive over NCCL, which knows neither tags nor sizes that differ.
//
// Two ranks agree on a message through the store before they give it to NCCL, so that a message
// which is given up leaves nothing behind on the other side:
//
//   1. the sender offers its messages: "offer/…" holds their numbers, tags, counts and dtypes;
//   2. the receiver grants one that fits a receive, or refuses one that does not: "grant/…" holds
//      the number of the grant and that of the message;
//   3. the sender commits itself, by the number of the grant at the head of its offers, or takes
//      the message back, by leaving it out; then the bytes move through a pipe.
//
// A message takes a few round trips to the store, which is right for what is sent now and then;
// patterns of messages are better made of collectives.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "comm/nccl_board.h"
#include "comm/nccl_pipe.h"
#include "comm/nccl_shared.h"

namespace ait::inline v0::internal {

/// All but `Start` and `FailureOf` are called by the thread of the group.
class NcclMessages {
 public:
  /// `end_group` is called if messages have come to where they can neither go on nor be given up.
  NcclMessages(const NcclShared& shared, NcclBoard& board,
               std::function<void(const Status&)> end_group);

  Work Start(Operation operation, NcclPlaced placed);
  /// Whether a message has not ended, or what remains of one.
  bool busy() const;
  /// What a message gets that comes after the group ended for `reason`.
  Status FailureOf(const Operation& operation, const Status& reason) const;

  /// Goes on with what can; true if something moved. Does not wait, but for the store.
  bool Step();
  /// Ends all messages to and from a rank that has left.
  void PeerLeft(int rank);

  /// The group has ended: stops NCCL, then, once it has, ends all messages.
  void Stop();
  bool AwaitStopped(Deadline deadline) const;
  void Fail(const Status& reason, const std::string& note);

 private:
  using MessagePtr = std::shared_ptr<NcclMessage>;
  struct Link {
    Link(const NcclShared& shared, NcclBoard& board, int peer, bool sends)
        : peer(peer), sends(sends), pipe(shared, board, peer, sends) {}

    const int peer;
    const bool sends;
    std::deque<MessagePtr> waiting;
    MessagePtr granted;  // of a receiver: waits for the sender's word
    MessagePtr active;   // in the pipe
    bool refusing = false;
    std::uint64_t granted_number = 0;  // the sender's number of `granted`
    std::uint64_t grant = 0;           // last one made, or answered
    std::uint64_t next_number = 1;
    Time next_poll{};
    Duration period{};
    NcclPipe pipe;
  };
  struct Offer {
    std::uint64_t number = 0;
    std::uint32_t tag = 0;
    std::int64_t count = 0;
    int dtype = 0;
    std::string description;
  };

  void TakeInbox();
  void GiveUpLate(Link& link);
  bool StepSender(Link& link);
  bool StepReceiver(Link& link);
  bool StepPipe(Link& link);
  void PublishOffers(Link& link);
  void PublishGrant(Link& link, const Offer& offer, bool accepted, const std::string& reason);
  std::vector<Offer> ReadOffers(Link& link, std::uint64_t* commit);
  bool MatchOffers(Link& link, const std::vector<Offer>& offers);
  void Begin(Link& link, MessagePtr message);
  void Finish(const MessagePtr& message, Status status);
  std::string Key(std::string_view what, const Link& link) const;
  static bool IsDue(Link& link);
  static void Hurry(Link& link);

  const NcclShared& shared_;
  NcclBoard& board_;
  const std::function<void(const Status&)> end_group_;
  std::map<std::pair<int, bool>, std::unique_ptr<Link>> links_;  // by peer and direction
  std::map<int, Time> left_;                                     // and when this rank heard of it
  std::atomic<int> count_{0};

  std::mutex mutex_;
  std::vector<MessagePtr> inbox_;
  Status failed_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_MESSAGES_H_
