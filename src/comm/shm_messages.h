// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHM_MESSAGES_H_
#define AIT_COMM_SHM_MESSAGES_H_

// Sends and receives of one rank of a shared-memory group.
//
// A send is offered; the receiver answers once a receive fits; then the bytes follow through a ring,
// or, if they lie in an arena, the receiver copies them from where they are. So a message that nobody
// has accepted can be taken back, and unexpected ones cost no memory. One thread at a time.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "comm/shm_group.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

class ShmMessages {
 public:
  struct Ended {
    std::shared_ptr<WorkState> work;
    Status status;
  };

  explicit ShmMessages(ShmGroup& group);

  /// Takes a send or a receive.
  void Start(Operation operation, std::shared_ptr<WorkState> work);
  /// Moves what can be moved now; true if something was.
  bool Advance(std::vector<Ended>& ended);
  /// Ends what has expired or whose peer is gone. An error if the group must break: a peer has
  /// stopped in the middle of a message.
  Status CheckFaults(std::vector<Ended>& ended);
  /// Takes back the message of `work`; false if it is not here, or moves already.
  bool Cancel(const WorkState* work, std::vector<Ended>& ended);
  /// Ends all with what `status_of` says of each.
  template <typename StatusOf>
  void EndAll(const StatusOf& status_of, std::vector<Ended>& ended) {
    for (Peer& peer : peers_) {
      for (Send& send : peer.sends) ended.push_back({send.work, status_of(send.operation)});
      for (Receive& receive : peer.receives) {
        ended.push_back({receive.work, status_of(receive.operation)});
      }
      peer.sends.clear();
      peer.receives.clear();
      peer.streaming.reset();
      peer.filling.reset();
    }
    pending_ = 0;
    withdrawn_ = 0;
    unsent_ = false;
  }

  /// Something is to be moved, now or when a peer has moved.
  bool pending() const { return pending_ > 0 || withdrawn_ > 0 || unsent_; }
  /// A peer may be copying from a buffer of this rank.
  bool lends() const;
  Deadline NextDeadline() const;

 private:
  enum class RecordKind : std::uint32_t { kOffer, kWithdrawn, kHere, kBytes };
  enum class AnswerKind : std::uint32_t { kReady, kRefused, kCopied };

  struct Record {
    RecordKind kind;
    std::uint32_t tag;
    std::uint64_t id;
    std::uint64_t dtype;
    std::int64_t count;
    std::uint64_t signature;
    std::uint64_t where;
    std::uint64_t padding[2];
  };
  struct Answer {
    AnswerKind kind;
    std::uint32_t dtype;
    std::uint64_t id;
    std::int64_t count;
    std::uint64_t padding;
  };
  static_assert(sizeof(Record) == 64 && sizeof(Answer) == 32);

  struct Send {
    Operation operation;
    std::shared_ptr<WorkState> work;
    std::uint64_t id;
    bool accepted = false;
    bool lent = false;
  };
  struct Receive {
    Operation operation;
    std::shared_ptr<WorkState> work;
    std::optional<Record> offer;  // that it has accepted
  };
  struct Flow {
    std::uint64_t id;
    std::uint64_t moved = 0;  // bytes
  };
  struct Peer {
    std::deque<Send> sends;
    std::deque<Receive> receives;
    std::deque<Record> offers;      // of the peer, unmatched
    std::deque<Record> outbox;      // to be written to the ring
    std::deque<Answer> answers;     // to be written to the answer ring
    int withdrawn = 0;              // sends taken back, of which the peer does not know yet
    std::optional<Flow> streaming;  // bytes that follow the last record written
    std::optional<Flow> filling;    // bytes that follow the last record read
  };

  struct Ring {
    ShmRing* state;
    std::byte* data;
    std::size_t capacity;
    std::size_t Readable() const;
    std::size_t Writable() const;
    void Write(const void* from, std::size_t bytes);
    void Read(void* to, std::size_t bytes);
  };
  Ring RingAt(int owner, std::size_t offset, std::size_t capacity) const;
  Ring MessageRing(int from, int to) const;
  Ring AnswerRing(int from, int to) const;

  bool ReadAnswers(int peer, std::vector<Ended>& ended);
  bool WriteRecords(int peer, std::vector<Ended>& ended);
  bool ReadRecords(int peer, std::vector<Ended>& ended);
  bool Match(int peer, std::vector<Ended>& ended);
  bool WriteAnswers(int peer);
  void EndSend(Peer& peer, std::uint64_t id, Status status, std::vector<Ended>& ended);
  void EndReceive(Peer& peer, std::uint64_t id, Status status, std::vector<Ended>& ended);
  std::string Who(const Operation& operation) const;

  ShmGroup& group_;
  const int rank_;
  std::vector<Peer> peers_;
  int pending_ = 0;
  int withdrawn_ = 0;    // sends taken back, of which the peer does not know yet
  bool unsent_ = false;  // a record or an answer waits for room
  std::uint64_t last_id_ = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SHM_MESSAGES_H_
