// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_messages.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string_view>

namespace ait::inline v0::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kFirstPoll{100};
constexpr milliseconds kLastPoll{5};
constexpr milliseconds kPatience{1000};
constexpr milliseconds kArrival{1000};

/// What a key holds; empty if it is not set or the store does not answer.
std::string ReadKey(Store& store, const std::string& key) {
  const StatusOr<bool> is_set = store.Contains(key);
  if (!is_set.ok() || !*is_set) return "";
  return store.Get(key, Deadline::After(kPatience)).value_or("");
}

}  // namespace

NcclMessages::NcclMessages(const NcclShared& shared, NcclBoard& board,
                           std::function<void(const Status&)> end_group)
    : shared_(shared), board_(board), end_group_(std::move(end_group)) {}

Work NcclMessages::Start(Operation operation, NcclPlaced placed) {
  auto message = std::make_shared<NcclMessage>();
  message->operation = std::move(operation);
  message->placed = std::move(placed);
  message->state = std::make_shared<WorkState>();
  message->state->OnCancel([weak = std::weak_ptr<NcclMessage>(message)] {
    if (const MessagePtr alive = weak.lock()) alive->cancelled = true;
  });
  std::lock_guard lock(mutex_);
  if (!failed_.ok()) return Work(FailureOf(message->operation, failed_));
  inbox_.push_back(message);
  ++count_;
  return Work(message->state);
}

bool NcclMessages::busy() const {
  // A receive that was given up after its grant waits for the sender's word.
  return count_.load() > 0 || std::any_of(links_.begin(), links_.end(), [](const auto& entry) {
           return entry.second->granted != nullptr || entry.second->active != nullptr;
         });
}

Status NcclMessages::FailureOf(const Operation& operation, const Status& reason) const {
  const std::string what = StrCat("rank ", board_.options().rank, ": ", operation.Describe(), ": ");
  if (reason.code() == StatusCode::kUnavailable)
    return Annotate(reason, what.substr(0, what.size() - 2));
  return AbortedError(what, "the group ended: ", Message(reason));
}

void NcclMessages::Finish(const MessagePtr& message, Status status) {
  if (message->state->done()) return;
  --count_;
  message->state->Finish(std::move(status));
}

std::string NcclMessages::Key(std::string_view what, const Link& link) const {
  const int self = board_.options().rank;
  return StrCat(board_.Key(what), "/", link.sends ? self : link.peer, "-",
                link.sends ? link.peer : self);
}

bool NcclMessages::IsDue(Link& link) {
  const Time now = SystemClock().now();
  if (now < link.next_poll) return false;
  link.period = std::clamp<Duration>(link.period * 3 / 2, kFirstPoll, kLastPoll);
  link.next_poll = now + link.period;
  return true;
}

void NcclMessages::Hurry(Link& link) {
  link.period = Duration{};
  link.next_poll = Time{};
}

void NcclMessages::TakeInbox() {
  std::vector<MessagePtr> inbox;
  {
    std::lock_guard lock(mutex_);
    inbox.swap(inbox_);
  }
  for (MessagePtr& message : inbox) {
    const bool sends = message->operation.kind == OperationKind::kSend;
    const int peer = message->operation.peer.value();
    if (left_.contains(peer)) {
      Finish(message,
             FailureOf(message->operation, UnavailableError("rank ", peer, " has left the group")));
      continue;
    }
    std::unique_ptr<Link>& link = links_[{peer, sends}];
    if (link == nullptr) link = std::make_unique<Link>(shared_, board_, peer, sends);
    message->number = link->next_number++;
    link->waiting.push_back(std::move(message));
    if (sends) PublishOffers(*link);
    Hurry(*link);
  }
}

bool NcclMessages::Step() {
  if (!busy()) return false;
  TakeInbox();
  bool moved = false;
  for (auto& [key, link] : links_) {
    GiveUpLate(*link);
    if (link->active != nullptr) {
      moved = StepPipe(*link) || moved;
    } else {
      moved = (link->sends ? StepSender(*link) : StepReceiver(*link)) || moved;
    }
  }
  return moved;
}

/// Ends messages whose deadline has passed or that were cancelled.
void NcclMessages::GiveUpLate(Link& link) {
  const auto why = [&](const NcclMessage& message) -> Status {
    const std::string what =
        StrCat("rank ", board_.options().rank, ": ", message.operation.Describe(), ": ");
    if (message.cancelled) return CancelledError(what, "cancelled");
    if (!message.operation.deadline.expired()) return OkStatus();
    return DeadlineExceededError(what, "rank ", link.peer, " did not come in time");
  };
  bool changed = false;
  for (auto message = link.waiting.begin(); message != link.waiting.end();) {
    const Status status = why(**message);
    if (status.ok()) {
      ++message;
      continue;
    }
    const MessagePtr over = *message;
    message = link.waiting.erase(message);
    changed = true;
    Finish(over, status);
  }
  if (changed && link.sends) PublishOffers(link);
  if (link.granted != nullptr) {
    // It ends now; what the sender may still send goes nowhere.
    if (const Status status = why(*link.granted); !status.ok()) Finish(link.granted, status);
  }
  if (link.active != nullptr && !link.active->state->done()) {
    // Its bytes are on their way; if they do not arrive, only an abort takes NCCL off its memory.
    const Deadline deadline = link.active->operation.deadline;
    if (!deadline.is_infinite() && SystemClock().now() - kArrival > deadline.time()) {
      link.active->cancelled = false;  // that came too late
      end_group_(why(*link.active));
    }
    // A peer that has left may have done its part before; it does not take long to arrive.
    const auto left = left_.find(link.peer);
    if (left != left_.end() && SystemClock().now() - left->second > kArrival) {
      end_group_(UnavailableError("rank ", link.peer, " has left the group"));
    }
  }
}

void NcclMessages::PublishOffers(Link& link) {
  std::string text = StrCat(link.grant, " ", link.waiting.size(), "\n");
  for (const MessagePtr& message : link.waiting) {
    const Operation& operation = message->operation;
    text += StrCat(message->number, " ", operation.tag, " ", operation.input.count, " ",
                   static_cast<int>(operation.dtype), " ", operation.Describe(), "\n");
    if (text.size() > (std::size_t{1} << 16)) break;  // the rest is offered when these are gone
  }
  board_.store().Set(Key("offer", link), text).IgnoreError();
}

void NcclMessages::PublishGrant(Link& link, const Offer& offer, bool accepted,
                                const std::string& reason) {
  ++link.grant;
  link.granted_number = offer.number;
  link.refusing = !accepted;
  board_.store()
      .Set(Key("grant", link),
           StrCat(link.grant, " ", offer.number, " ", accepted ? 1 : 0, " ", reason))
      .IgnoreError();
  Hurry(link);
}

bool NcclMessages::StepSender(Link& link) {
  if (link.waiting.empty() || !IsDue(link)) return false;
  std::istringstream text(ReadKey(board_.store(), Key("grant", link)));
  std::uint64_t grant = 0;
  std::uint64_t number = 0;
  int accepted = 0;
  std::string reason;
  if (!(text >> grant >> number >> accepted) || grant <= link.grant) return false;
  text.ignore(1);
  std::getline(text, reason, '\0');
  const auto found = std::find_if(link.waiting.begin(), link.waiting.end(),
                                  [&](const MessagePtr& m) { return m->number == number; });
  if (found == link.waiting.end()) return false;  // taken back; the offers say so
  const MessagePtr message = *found;
  link.waiting.erase(found);
  link.grant = grant;
  Hurry(link);
  if (accepted != 0) {
    if (const Status status = link.pipe.Publish(); !status.ok()) {
      end_group_(status);
      return true;
    }
  }
  PublishOffers(link);
  if (accepted != 0) {
    Begin(link, message);
  } else {
    Finish(message, InvalidArgumentError(reason));
  }
  return true;
}

std::vector<NcclMessages::Offer> NcclMessages::ReadOffers(Link& link, std::uint64_t* commit) {
  std::istringstream text(ReadKey(board_.store(), Key("offer", link)));
  std::size_t size = 0;
  std::vector<Offer> offers;
  *commit = 0;
  text >> *commit >> size;
  Offer offer;
  while (offers.size() < size && text >> offer.number >> offer.tag >> offer.count >> offer.dtype) {
    text.ignore(1);
    std::getline(text, offer.description);
    offers.push_back(offer);
  }
  return offers;
}

bool NcclMessages::StepReceiver(Link& link) {
  if ((link.waiting.empty() && link.granted == nullptr) || !IsDue(link)) return false;
  std::uint64_t commit = 0;
  const std::vector<Offer> offers = ReadOffers(link, &commit);
  if (link.granted == nullptr) return MatchOffers(link, offers);
  const MessagePtr message = link.granted;
  if (commit == link.grant) {
    link.granted = nullptr;
    if (link.refusing) return true;  // it has ended
    Begin(link, message);
    return true;
  }
  const bool still_offered = std::any_of(offers.begin(), offers.end(), [&](const Offer& offer) {
    return offer.number == link.granted_number;
  });
  if (still_offered) return false;
  // The sender took it back: the receive waits for another one.
  link.granted = nullptr;
  if (!message->state->done()) link.waiting.push_front(message);
  return true;
}

bool NcclMessages::MatchOffers(Link& link, const std::vector<Offer>& offers) {
  for (auto it = link.waiting.begin(); it != link.waiting.end(); ++it) {
    const MessagePtr message = *it;
    const Operation& operation = message->operation;
    const auto offer = std::find_if(offers.begin(), offers.end(), [&](const Offer& candidate) {
      return candidate.tag == operation.tag;
    });
    if (offer == offers.end()) continue;
    link.waiting.erase(it);
    link.granted = message;
    const bool fits =
        offer->count == operation.output.count && offer->dtype == static_cast<int>(operation.dtype);
    if (fits) {
      PublishGrant(link, *offer, true, "");
      return true;
    }
    const int self = board_.options().rank;
    const std::string reason =
        StrCat("the two do not fit: rank ", link.peer, ": ", offer->description, "; rank ", self,
               ": ", operation.Describe());
    PublishGrant(link, *offer, false, StrCat("rank ", link.peer, ": ", reason));
    Finish(message, InvalidArgumentError("rank ", self, ": ", reason));
    return true;
  }
  return false;
}

void NcclMessages::Begin(Link& link, MessagePtr message) {
  message->state->MarkStarted();
  link.active = message;
  if (const Status status = link.pipe.Begin(std::move(message)); !status.ok()) end_group_(status);
}

bool NcclMessages::StepPipe(Link& link) {
  const StatusOr<bool> done = link.pipe.Step();
  if (!done.ok()) {
    end_group_(done.status());
    return true;
  }
  if (!*done) return false;
  const MessagePtr message = std::exchange(link.active, nullptr);
  Hurry(link);
  Finish(message, OkStatus());
  return true;
}

void NcclMessages::PeerLeft(int rank) {
  if (!left_.emplace(rank, SystemClock().now()).second) return;
  const Status reason = UnavailableError("rank ", rank, " has left the group");
  for (auto& [key, link] : links_) {
    if (link->peer != rank) continue;
    std::vector<MessagePtr> over(link->waiting.begin(), link->waiting.end());
    link->waiting.clear();
    if (link->granted != nullptr) over.push_back(std::exchange(link->granted, nullptr));
    for (const MessagePtr& message : over) Finish(message, FailureOf(message->operation, reason));
  }
}

void NcclMessages::Stop() {
  for (auto& [key, link] : links_) link->pipe.End();
}

bool NcclMessages::AwaitStopped(Deadline deadline) const {
  return std::all_of(links_.begin(), links_.end(),
                     [&](const auto& entry) { return entry.second->pipe.AwaitEnd(deadline); });
}

void NcclMessages::Fail(const Status& reason, const std::string& note) {
  std::vector<MessagePtr> messages;
  {
    std::lock_guard lock(mutex_);
    failed_ = reason;
    messages.swap(inbox_);
  }
  for (auto& [key, link] : links_) {
    messages.insert(messages.end(), link->waiting.begin(), link->waiting.end());
    for (const MessagePtr& message : {link->granted, link->active}) {
      if (message != nullptr) messages.push_back(message);
    }
  }
  for (const MessagePtr& message : messages) {
    const Status status = FailureOf(message->operation, reason);
    Finish(message, Status(status.code(), Message(status) + note));
  }
}

}  // namespace ait::inline v0::internal
