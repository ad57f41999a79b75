// SPDX-License-Identifier: Apache-2.0
#include "comm/pair_messages.h"

#include <algorithm>
#include <utility>

#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

// Tags below 2^29; collectives are above (pair_collectives.cc).
constexpr std::uint32_t kControlTag = 1;
constexpr std::uint32_t PayloadTag(std::uint64_t id) {
  return (1U << 28) | static_cast<std::uint32_t>(id & 0xfffffff);
}

// Payloads that are waited for at a time. Those beyond move too; their end is noticed later.
constexpr std::size_t kMaxWaiters = 16;

bool IsSend(const Operation& operation) { return operation.kind == OperationKind::kSend; }

}  // namespace

PairMessages::PairMessages(PairLink& link, Rank rank, WorldSize size,
                           std::function<Status(int, const Status&)> who_broke)
    : link_(link),
      rank_(rank.value()),
      who_broke_(std::move(who_broke)),
      peers_(static_cast<std::size_t>(size.value())) {}

void PairMessages::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  payload_came_.notify_all();
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->reader.join();
  }
  for (std::thread& waiter : waiters_) waiter.join();
}

Status PairMessages::Say(const Message& message, const Status& status) const {
  return Annotate(status, StrCat("rank ", rank_, ": ", message.operation.Describe()));
}

void PairMessages::Finish(Endings& endings) {
  for (auto& [message, status] : endings) {
    message->payload = nullptr;  // the memory is the caller's again
    message->state->Finish(std::move(status));
  }
  endings.clear();
}

bool PairMessages::busy() const {
  std::lock_guard lock(mutex_);
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
    return peer != nullptr &&
           (!peer->sends.empty() || !peer->receives.empty() || !peer->accepted.empty());
  });
}

StatusOr<PairMessages::Peer*> PairMessages::PeerOf(int rank) {
  std::unique_ptr<Peer>& place = peers_[static_cast<std::size_t>(rank)];
  if (place == nullptr) {
    auto peer = std::make_unique<Peer>();
    peer->rank = rank;
    AIT_ASSIGN_OR_RETURN(peer->reader,
                         StartOwnThread("messages", [this, raw = peer.get()] { Read(*raw); }));
    place = std::move(peer);
  }
  return place.get();
}

Work PairMessages::Start(Operation operation, std::weak_ptr<void> owner) {
  auto message = std::make_shared<Message>();
  message->state = std::make_shared<WorkState>();
  message->operation = std::move(operation);
  const Operation& what = message->operation;
  message->state->OnCancel(
      [this, owner = std::move(owner), weak = std::weak_ptr<Message>(message)] {
        const std::shared_ptr<void> group = owner.lock();  // it may close meanwhile
        const MessagePtr alive = weak.lock();
        if (group == nullptr || alive == nullptr) return;
        Endings cancelled;
        {
          std::lock_guard lock(mutex_);
          Withdraw(*peers_[static_cast<std::size_t>(alive->operation.peer.value())], alive,
                   CancelledError("cancelled"), cancelled);
        }
        Finish(cancelled);
      });
  Endings endings;
  {
    std::lock_guard lock(mutex_);
    if (!failed_.ok()) {
      End(message, AbortedError("the group failed earlier: ", ait::Message(failed_)), endings);
    } else if (const StatusOr<Peer*> reached = PeerOf(what.peer.value()); !reached.ok()) {
      End(message, reached.status(), endings);
    } else {
      Peer& peer = **reached;
      if (!peer.gone.ok()) {
        End(message, peer.gone, endings);
      } else if (IsSend(what)) {
        message->id = peer.next_id++;
        peer.sends.emplace(message->id, message);
        SendControl(peer,
                    {ControlType::kOffer, what.dtype, what.tag, message->id, what.input.count});
      } else if (auto offered = peer.offers.find(what.tag);
                 offered != peer.offers.end() && !offered->second.empty()) {
        const Control offer = offered->second.front();
        offered->second.pop_front();
        if (offered->second.empty()) peer.offers.erase(offered);
        Match(peer, message, offer, endings);
      } else {
        peer.receives[what.tag].push_back(message);
      }
    }
  }
  Work work(message->state);
  Finish(endings);
  return work;
}

/// Ends a message that is out of all lists; through its waiter if it has one.
void PairMessages::End(const MessagePtr& message, const Status& why, Endings& endings) {
  if (message->over) return;
  message->over = true;
  if (message->moving && std::erase_if(payloads_, [&](const auto& waiting) {
                           return waiting.second == message;
                         }) == 0) {
    message->ending = why;
    if (message->payload != nullptr) link_.Interrupt(*message->payload);
  } else {
    endings.emplace_back(message, Say(*message, why));
  }
}

/// Errors are left to the reading thread, which meets the same broken connection.
void PairMessages::SendControl(Peer& peer, Control control) {
  control.received = peer.received;
  auto memory = std::make_unique<Control>(control);  // sent when the other side is ready
  StatusOr<PairLink::PiecePtr> piece =
      link_.Send(memory.get(), sizeof(Control), peer.rank, kControlTag);
  if (piece.ok()) peer.controls.emplace_back(std::move(memory), *std::move(piece));
}

void PairMessages::Read(Peer& peer) {
  while (true) {
    Control control;
    StatusOr<PairLink::PiecePtr> piece =
        link_.Receive(&control, sizeof(control), peer.rank, kControlTag);
    Status status = piece.ok() ? link_.Await(**piece) : piece.status();
    Endings endings;
    if (status.ok()) {
      std::lock_guard lock(mutex_);
      Handle(peer, control, endings);
    } else {
      if (status.code() != StatusCode::kCancelled) status = who_broke_(peer.rank, status);
      std::lock_guard lock(mutex_);
      // Interrupted: `Fail` or the destructor ends the messages, with the reason.
      if (status.code() == StatusCode::kCancelled) return;
      peer.gone = status;
      EndAll(peer, status, endings);
    }
    Finish(endings);
    if (!status.ok()) return;
  }
}

void PairMessages::Handle(Peer& peer, const Control& control, Endings& endings) {
  ++peer.received;
  for (; peer.released < control.received && !peer.controls.empty(); ++peer.released) {
    peer.controls.pop_front();
  }
  switch (control.type) {
    case ControlType::kOffer: {
      auto waiting = peer.receives.find(control.tag);
      if (waiting == peer.receives.end() || waiting->second.empty()) {
        peer.offers[control.tag].push_back(control);
        return;
      }
      const MessagePtr receive = waiting->second.front();
      waiting->second.pop_front();
      if (waiting->second.empty()) peer.receives.erase(waiting);
      return Match(peer, receive, control, endings);
    }
    case ControlType::kAccept:
    case ControlType::kRefuse: {
      const auto found = peer.sends.find(control.id);
      if (found == peer.sends.end()) return;  // withdrawn meanwhile
      const MessagePtr send = found->second;
      if (control.type == ControlType::kRefuse) {
        peer.sends.erase(found);
        Operation other{.kind = OperationKind::kReceive, .dtype = control.dtype};
        other.output = {nullptr, control.count, control.dtype};
        other.peer = Rank(rank_);
        other.tag = control.tag;
        return End(send,
                   InvalidArgumentError("rank ", peer.rank,
                                        " asks for another message: ", other.Describe()),
                   endings);
      }
      const ConstBuffer& input = send->operation.input;
      send->state->MarkStarted();
      if (input.count > 0) {
        StatusOr<PairLink::PiecePtr> piece =
            link_.Send(input.data, input.bytes().value(), peer.rank, PayloadTag(control.id));
        if (!piece.ok()) return;  // the next read sees it too
        send->payload = *std::move(piece);
      }
      return AwaitPayload(peer, send, endings);
    }
    case ControlType::kWithdraw: {
      for (auto& [tag, offers] : peer.offers) {
        std::erase_if(offers, [&](const Control& offer) { return offer.id == control.id; });
      }
      std::erase_if(peer.offers, [](const auto& entry) { return entry.second.empty(); });
      if (const auto found = peer.accepted.find(control.id); found != peer.accepted.end()) {
        if (found->second->payload != nullptr) link_.Interrupt(*found->second->payload);
      }
      return;
    }
  }
}

void PairMessages::Match(Peer& peer, const MessagePtr& receive, const Control& offer,
                         Endings& endings) {
  const Buffer& output = receive->operation.output;
  if (offer.count != output.count || offer.dtype != output.dtype) {
    SendControl(peer, {ControlType::kRefuse, output.dtype, offer.tag, offer.id, output.count});
    Operation other{.kind = OperationKind::kSend, .dtype = offer.dtype};
    other.input = {nullptr, offer.count, offer.dtype};
    other.peer = Rank(rank_);
    other.tag = offer.tag;
    return End(
        receive,
        InvalidArgumentError("rank ", peer.rank, " has another message for it: ", other.Describe()),
        endings);
  }
  receive->id = offer.id;
  receive->state->MarkStarted();
  peer.accepted.emplace(offer.id, receive);
  if (output.count > 0) {
    StatusOr<PairLink::PiecePtr> piece =
        link_.Receive(output.data, output.bytes().value(), peer.rank, PayloadTag(offer.id));
    if (!piece.ok()) return;  // the next read sees it too
    receive->payload = *std::move(piece);
  }
  SendControl(peer, {ControlType::kAccept, offer.dtype, offer.tag, offer.id, offer.count});
  AwaitPayload(peer, receive, endings);
}

void PairMessages::AwaitPayload(Peer& peer, const MessagePtr& message, Endings& endings) {
  if (payloads_.size() >= idle_waiters_ && waiters_.size() < kMaxWaiters) {
    StatusOr<std::thread> waiter = StartOwnThread("messages", [this] { RunWaiter(); });
    if (waiter.ok()) {
      waiters_.push_back(*std::move(waiter));
    } else if (waiters_.empty()) {
      (IsSend(message->operation) ? peer.sends : peer.accepted).erase(message->id);
      return End(message, waiter.status(), endings);
    }
  }
  message->moving = true;
  payloads_.emplace_back(&peer, message);
  payload_came_.notify_one();
}

void PairMessages::RunWaiter() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_waiters_;
    payload_came_.wait(lock, [&] { return stopping_ || !payloads_.empty(); });
    --idle_waiters_;
    if (payloads_.empty()) return;
    auto [peer, message] = std::move(payloads_.front());
    payloads_.pop_front();
    PairLink::PiecePtr payload = message->payload;
    lock.unlock();
    Status status = payload == nullptr ? OkStatus() : link_.Await(*payload);
    if (status.code() == StatusCode::kUnavailable) status = who_broke_(peer->rank, status);
    lock.lock();
    message->payload = nullptr;
    (IsSend(message->operation) ? peer->sends : peer->accepted).erase(message->id);
    if (status.code() == StatusCode::kCancelled) {
      status = message->over ? message->ending
                             : AbortedError("rank ", peer->rank, " gave the message up");
    }
    message->over = true;
    lock.unlock();
    payload = nullptr;  // the memory is the caller's again
    message->state->Finish(status.ok() ? status : Say(*message, status));
    message.reset();
    lock.lock();
  }
}

/// Takes a message out of all lists, so that nobody else ends it, and ends it.
void PairMessages::Withdraw(Peer& peer, const MessagePtr& message, const Status& why,
                            Endings& endings) {
  if (message->over) return;
  const Operation& what = message->operation;
  if (IsSend(what)) {
    peer.sends.erase(message->id);
    SendControl(peer,
                {ControlType::kWithdraw, what.dtype, what.tag, message->id, what.input.count});
  } else {
    peer.accepted.erase(message->id);
    auto& waiting = peer.receives[what.tag];
    std::erase(waiting, message);
    if (waiting.empty()) peer.receives.erase(what.tag);
  }
  End(message, why, endings);
}

void PairMessages::Check(Time now) {
  Endings endings;
  {
    std::lock_guard lock(mutex_);
    for (const auto& peer : peers_) {
      if (peer == nullptr) continue;
      std::vector<MessagePtr> late;
      const auto look = [&](const MessagePtr& message) {
        const Deadline& deadline = message->operation.deadline;
        if (!deadline.is_infinite() && now >= deadline.time()) late.push_back(message);
      };
      for (const auto& [id, message] : peer->sends) look(message);
      for (const auto& [id, message] : peer->accepted) look(message);
      for (const auto& [tag, waiting] : peer->receives) {
        for (const MessagePtr& message : waiting) look(message);
      }
      for (const MessagePtr& message : late) {
        Withdraw(*peer, message,
                 DeadlineExceededError("rank ", peer->rank, " did not come in time"), endings);
      }
    }
  }
  Finish(endings);
}

void PairMessages::EndAll(Peer& peer, const Status& reason, Endings& endings) {
  const auto end = [&](const MessagePtr& message) { End(message, reason, endings); };
  for (const auto& [id, message] : peer.sends) end(message);
  for (const auto& [id, message] : peer.accepted) end(message);
  for (const auto& [tag, waiting] : peer.receives) {
    for (const MessagePtr& message : waiting) end(message);
  }
  peer.sends.clear();
  peer.accepted.clear();
  peer.receives.clear();
}

void PairMessages::Fail(const Status& reason) {
  Endings endings;
  {
    std::lock_guard lock(mutex_);
    if (failed_.ok()) failed_ = reason;
    for (const auto& peer : peers_) {
      if (peer != nullptr) EndAll(*peer, reason, endings);
    }
  }
  Finish(endings);
}

}  // namespace ait::inline v0::internal
