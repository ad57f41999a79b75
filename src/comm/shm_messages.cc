// SPDX-License-Identifier: Apache-2.0
#include "comm/shm_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ait::inline v0::internal {

ShmMessages::ShmMessages(ShmGroup& group)
    : group_(group), rank_(group.rank()), peers_(static_cast<std::size_t>(group.size())) {}

std::size_t ShmMessages::Ring::Readable() const {
  return state->written.load(std::memory_order_acquire) -
         state->read.load(std::memory_order_relaxed);
}

std::size_t ShmMessages::Ring::Writable() const {
  return capacity - (state->written.load(std::memory_order_relaxed) -
                     state->read.load(std::memory_order_acquire));
}

void ShmMessages::Ring::Write(const void* from, std::size_t bytes) {
  const std::uint64_t at = state->written.load(std::memory_order_relaxed);
  const std::size_t begin = at % capacity;
  const std::size_t first = std::min(bytes, capacity - begin);
  std::memcpy(data + begin, from, first);
  std::memcpy(data, static_cast<const std::byte*>(from) + first, bytes - first);
  state->written.store(at + bytes, std::memory_order_seq_cst);
}

void ShmMessages::Ring::Read(void* to, std::size_t bytes) {
  const std::uint64_t at = state->read.load(std::memory_order_relaxed);
  const std::size_t begin = at % capacity;
  const std::size_t first = std::min(bytes, capacity - begin);
  std::memcpy(to, data + begin, first);
  std::memcpy(static_cast<std::byte*>(to) + first, data, bytes - first);
  state->read.store(at + bytes, std::memory_order_seq_cst);
}

ShmMessages::Ring ShmMessages::RingAt(int owner, std::size_t offset, std::size_t capacity) const {
  std::byte* const begin = group_.member(owner) + offset;
  return {reinterpret_cast<ShmRing*>(begin), begin + sizeof(ShmRing), capacity};
}

ShmMessages::Ring ShmMessages::MessageRing(int from, int to) const {
  const ShmMemberLayout& layout = group_.member_layout();
  return RingAt(from, layout.messages(to), layout.message_bytes);
}

ShmMessages::Ring ShmMessages::AnswerRing(int from, int to) const {
  return RingAt(from, group_.member_layout().answers(to), ShmMemberLayout::kAnswerBytes);
}

std::string ShmMessages::Who(const Operation& operation) const {
  return StrCat("rank ", rank_, ": ", operation.Describe());
}

void ShmMessages::Start(Operation operation, std::shared_ptr<WorkState> work) {
  Peer& peer = peers_[static_cast<std::size_t>(operation.peer.value())];
  ++pending_;
  if (operation.kind == OperationKind::kReceive) {
    peer.receives.push_back({std::move(operation), std::move(work), std::nullopt});
    return;
  }
  const std::uint64_t id = ++last_id_;
  peer.outbox.push_back({.kind = RecordKind::kOffer,
                         .tag = operation.tag,
                         .id = id,
                         .dtype = static_cast<std::uint64_t>(operation.dtype),
                         .count = operation.input.count,
                         .signature = operation.Signature(),
                         .where = 0,
                         .padding = {}});
  peer.sends.push_back({std::move(operation), std::move(work), id});
}

bool ShmMessages::Advance(std::vector<Ended>& ended) {
  bool moved = false;
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == rank_) continue;
    moved |= ReadAnswers(peer, ended);
    moved |= ReadRecords(peer, ended);
    moved |= Match(peer, ended);
    moved |= WriteAnswers(peer);
    moved |= WriteRecords(peer, ended);
  }
  unsent_ = std::ranges::any_of(
      peers_, [](const Peer& peer) { return !peer.outbox.empty() || !peer.answers.empty(); });
  if (moved) group_.WakeSleepers();
  return moved;
}

bool ShmMessages::ReadAnswers(int from, std::vector<Ended>& ended) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  Ring ring = AnswerRing(from, rank_);
  bool moved = false;
  while (ring.Readable() >= sizeof(Answer)) {
    Answer answer;
    ring.Read(&answer, sizeof(answer));
    moved = true;
    const auto send = std::ranges::find(peer.sends, answer.id, &Send::id);
    if (send == peer.sends.end()) {  // taken back meanwhile
      if (peer.withdrawn > 0) {
        --peer.withdrawn;
        --withdrawn_;
      }
      if (answer.kind == AnswerKind::kReady) {
        peer.outbox.push_back({.kind = RecordKind::kWithdrawn,
                               .tag = 0,
                               .id = answer.id,
                               .dtype = 0,
                               .count = 0,
                               .signature = 0,
                               .where = 0,
                               .padding = {}});
      }
      continue;
    }
    if (answer.kind == AnswerKind::kCopied) {
      EndSend(peer, answer.id, OkStatus(), ended);
    } else if (answer.kind == AnswerKind::kRefused) {
      Operation theirs{.kind = OperationKind::kReceive,
                       .dtype = static_cast<DType>(answer.dtype),
                       .peer = Rank(rank_),
                       .tag = send->operation.tag};
      theirs.output.count = answer.count;
      EndSend(peer, answer.id,
              InvalidArgumentError(Who(send->operation), ": the ranks do not fit: rank ", rank_,
                                   ": ", send->operation.Describe(), "; rank ", from, ": ",
                                   theirs.Describe()),
              ended);
    } else {
      send->accepted = true;
      send->work->MarkStarted();
      const auto bytes = static_cast<std::size_t>(send->operation.input.bytes().value());
      const std::uint64_t where =
          bytes == 0 ? 0 : group_.fabric().OffsetOf(send->operation.input.data, bytes);
      send->lent = where != kForeign;
      peer.outbox.push_back({.kind = send->lent ? RecordKind::kHere : RecordKind::kBytes,
                             .tag = 0,
                             .id = answer.id,
                             .dtype = 0,
                             .count = 0,
                             .signature = 0,
                             .where = where,
                             .padding = {}});
    }
  }
  return moved;
}

bool ShmMessages::WriteRecords(int to, std::vector<Ended>& ended) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  Ring ring = MessageRing(rank_, to);
  bool moved = false;
  while (true) {
    if (peer.streaming) {
      const auto send = std::ranges::find(peer.sends, peer.streaming->id, &Send::id);
      const auto total = static_cast<std::uint64_t>(send->operation.input.bytes().value());
      const std::size_t bytes = std::min(ring.Writable(), total - peer.streaming->moved);
      if (bytes > 0) {
        ring.Write(
            static_cast<const std::byte*>(send->operation.input.data) + peer.streaming->moved,
            bytes);
        peer.streaming->moved += bytes;
        moved = true;
      }
      if (peer.streaming->moved < total) return moved;
      const std::uint64_t id = peer.streaming->id;
      peer.streaming.reset();
      EndSend(peer, id, OkStatus(), ended);
      moved = true;
    }
    if (peer.outbox.empty() || ring.Writable() < sizeof(Record)) return moved;
    const Record record = peer.outbox.front();
    peer.outbox.pop_front();
    ring.Write(&record, sizeof(record));
    moved = true;
    if (record.kind == RecordKind::kBytes) peer.streaming = Flow{record.id};
  }
}

bool ShmMessages::ReadRecords(int from, std::vector<Ended>& ended) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  Ring ring = MessageRing(from, rank_);
  bool moved = false;
  const auto accepted = [&](std::uint64_t id) {
    return std::ranges::find_if(peer.receives, [&](const Receive& receive) {
      return receive.offer && receive.offer->id == id;
    });
  };
  while (true) {
    if (peer.filling) {
      const auto receive = accepted(peer.filling->id);
      const auto total = static_cast<std::uint64_t>(receive->operation.output.bytes().value());
      const std::size_t bytes = std::min(ring.Readable(), total - peer.filling->moved);
      if (bytes > 0) {
        ring.Read(static_cast<std::byte*>(receive->operation.output.data) + peer.filling->moved,
                  bytes);
        peer.filling->moved += bytes;
        moved = true;
      }
      if (peer.filling->moved < total) return moved;
      const std::uint64_t id = peer.filling->id;
      peer.filling.reset();
      EndReceive(peer, id, OkStatus(), ended);
    }
    if (ring.Readable() < sizeof(Record)) return moved;
    Record record;
    ring.Read(&record, sizeof(record));
    moved = true;
    if (record.kind == RecordKind::kOffer) {
      peer.offers.push_back(record);
      continue;
    }
    const auto receive = accepted(record.id);
    if (receive == peer.receives.end()) continue;
    if (record.kind == RecordKind::kWithdrawn) {
      receive->offer.reset();
    } else if (record.kind == RecordKind::kBytes) {
      peer.filling = Flow{record.id};
    } else {
      const Buffer& to = receive->operation.output;
      const auto bytes = static_cast<std::size_t>(to.bytes().value());
      if (bytes > 0) std::memcpy(to.data, group_.At(from, record.where, bytes), bytes);
      peer.answers.push_back({AnswerKind::kCopied, 0, record.id, 0, 0});
      EndReceive(peer, record.id, OkStatus(), ended);
    }
  }
}

bool ShmMessages::Match(int from, std::vector<Ended>& ended) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  bool moved = false;
  for (auto receive = peer.receives.begin(); receive != peer.receives.end();) {
    const Operation& operation = receive->operation;
    if (receive->offer) {
      ++receive;
      continue;
    }
    const auto offer = std::ranges::find(peer.offers, operation.tag, &Record::tag);
    if (offer == peer.offers.end()) {
      ++receive;
      continue;
    }
    moved = true;
    const Record record = *offer;
    peer.offers.erase(offer);
    if (record.signature == operation.Signature()) {
      receive->work->MarkStarted();
      receive->offer = record;
      peer.answers.push_back({AnswerKind::kReady, 0, record.id, 0, 0});
      ++receive;
      continue;
    }
    peer.answers.push_back({AnswerKind::kRefused, static_cast<std::uint32_t>(operation.dtype),
                            record.id, operation.output.count, 0});
    Operation theirs{.kind = OperationKind::kSend,
                     .dtype = static_cast<DType>(record.dtype),
                     .peer = Rank(rank_),
                     .tag = record.tag};
    theirs.input.count = record.count;
    ended.push_back(
        {receive->work,
         InvalidArgumentError(Who(operation), ": the ranks do not fit: rank ", rank_, ": ",
                              operation.Describe(), "; rank ", from, ": ", theirs.Describe())});
    receive = peer.receives.erase(receive);
    --pending_;
  }
  return moved;
}

bool ShmMessages::WriteAnswers(int to) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  Ring ring = AnswerRing(rank_, to);
  bool moved = false;
  while (!peer.answers.empty() && ring.Writable() >= sizeof(Answer)) {
    ring.Write(&peer.answers.front(), sizeof(Answer));
    peer.answers.pop_front();
    moved = true;
  }
  return moved;
}

void ShmMessages::EndSend(Peer& peer, std::uint64_t id, Status status, std::vector<Ended>& ended) {
  const auto send = std::ranges::find(peer.sends, id, &Send::id);
  ended.push_back({std::move(send->work), std::move(status)});
  peer.sends.erase(send);
  --pending_;
}

void ShmMessages::EndReceive(Peer& peer, std::uint64_t id, Status status,
                             std::vector<Ended>& ended) {
  const auto receive = std::ranges::find_if(
      peer.receives, [&](const Receive& one) { return one.offer && one.offer->id == id; });
  ended.push_back({std::move(receive->work), std::move(status)});
  peer.receives.erase(receive);
  --pending_;
}

Status ShmMessages::CheckFaults(std::vector<Ended>& ended) {
  constexpr std::chrono::seconds kGrace(1);  // for a peer that has begun and may yet go on
  const Time now = SystemClock().now();
  for (int from = 0; from < group_.size(); ++from) {
    Peer& peer = peers_[static_cast<std::size_t>(from)];
    const bool owes = peer.withdrawn > 0 || !peer.outbox.empty() || !peer.answers.empty();
    if (peer.sends.empty() && peer.receives.empty() && !owes) continue;
    const bool gone = group_.IsGone(from);
    // What it wrote before it went is still read.
    if (gone && Advance(ended)) return OkStatus();
    Status stuck;
    const auto fault = [&](const Operation& operation, bool moves) -> Status {
      if (gone) {
        return UnavailableError(Who(operation), ": rank ", from, " has left the group or died");
      }
      const Time limit = operation.deadline.time();
      if (operation.deadline.is_infinite() || now < limit) return OkStatus();
      if (!moves) {
        return DeadlineExceededError(Who(operation), ": the deadline passed: rank ", from,
                                     " did not come (", group_.Describe(from), ")");
      }
      if (now >= limit + kGrace) {
        stuck = DeadlineExceededError(Who(operation), ": the deadline passed: rank ", from,
                                      " has stopped in the middle of the message (",
                                      group_.Describe(from), ")");
      }
      return OkStatus();
    };
    std::erase_if(peer.sends, [&](Send& send) {
      Status status = fault(send.operation, send.accepted);
      if (status.ok()) return false;
      if (peer.streaming && peer.streaming->id == send.id) peer.streaming.reset();
      ++peer.withdrawn;
      ++withdrawn_;
      ended.push_back({std::move(send.work), std::move(status)});
      --pending_;
      return true;
    });
    std::erase_if(peer.receives, [&](Receive& receive) {
      Status status = fault(receive.operation, receive.offer.has_value());
      if (status.ok()) return false;
      if (receive.offer && peer.filling && peer.filling->id == receive.offer->id) {
        peer.filling.reset();
      }
      ended.push_back({std::move(receive.work), std::move(status)});
      --pending_;
      return true;
    });
    if (!stuck.ok()) return stuck;
    if (gone) {  // nobody will ever read what it was to be told
      withdrawn_ -= std::exchange(peer.withdrawn, 0);
      peer.outbox.clear();
      peer.answers.clear();
    }
  }
  return OkStatus();
}

bool ShmMessages::Cancel(const WorkState* work, std::vector<Ended>& ended) {
  const auto cancelled = [&](const Operation& operation) {
    return CancelledError(Who(operation), ": cancelled by the caller");
  };
  for (Peer& peer : peers_) {
    for (auto send = peer.sends.begin(); send != peer.sends.end(); ++send) {
      if (send->work.get() != work || send->accepted) continue;
      ended.push_back({send->work, cancelled(send->operation)});
      peer.sends.erase(send);
      --pending_;
      ++peer.withdrawn;
      ++withdrawn_;
      return true;
    }
    for (auto receive = peer.receives.begin(); receive != peer.receives.end(); ++receive) {
      if (receive->work.get() != work || receive->offer) continue;
      ended.push_back({receive->work, cancelled(receive->operation)});
      peer.receives.erase(receive);
      --pending_;
      return true;
    }
  }
  return false;
}

bool ShmMessages::lends() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) {
    return std::ranges::any_of(peer.sends, [](const Send& send) { return send.lent; });
  });
}

Deadline ShmMessages::NextDeadline() const {
  Time next = Time::max();
  for (const Peer& peer : peers_) {
    for (const Send& send : peer.sends) next = std::min(next, send.operation.deadline.time());
    for (const Receive& one : peer.receives) next = std::min(next, one.operation.deadline.time());
  }
  return Deadline::At(next);
}

}  // namespace ait::inline v0::internal
