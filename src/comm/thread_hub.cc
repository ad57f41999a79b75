// SPDX-License-Identifier: Apache-2.0
#include "comm/thread_hub.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/direct.h"
#include "comm/operation_check.h"
#include "comm/operation_compare.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::string_view kCancelled = ": cancelled by the caller";

std::string Who(Rank rank, const Operation& operation) {
  return StrCat("rank ", rank, ": ", operation.Describe());
}

}  // namespace

ThreadHub::ThreadHub(WorldSize size) {
  meeting_.operations.resize(static_cast<std::size_t>(size.value()));
  for (int rank = 0; rank < size.value(); ++rank) seats_.push_back(std::make_unique<Seat>());
}

Work ThreadHub::Start(Rank rank, Operation operation) {
  auto state = std::make_shared<WorkState>();
  state->OnCancel([hub = weak_from_this(), rank, work = state.get()] {
    if (const std::shared_ptr<ThreadHub> alive = hub.lock()) alive->Cancel(rank, work);
  });
  Task task{std::move(operation), state, rank};
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    Seat& seat = SeatOf(rank);
    if (broken_) {
      ended.push_back({state, FailureOf(task, /*was_current=*/false)});
    } else if (IsMessage(task.operation.kind)) {
      StartMessage(std::move(task), ended);
    } else {
      seat.waiting.push_back(std::move(task));
      if (!seat.current) Arrive(rank);
    }
    Notify(seat);
  }
  for (const Ended& end : ended) end.work->Finish(end.status);
  return Work(state);
}

void ThreadHub::Run(Rank rank) {
  std::vector<Ended> ended;
  std::unique_lock lock(mutex_);
  Seat& seat = SeatOf(rank);
  while (true) {
    const bool progressed = Progress(rank, lock, ended);
    if (!ended.empty()) {
      lock.unlock();
      for (const Ended& end : ended) end.work->Finish(end.status);
      lock.lock();
      ended.clear();
    } else if (!progressed) {
      if (seat.leaving && !seat.current && seat.lent == 0) return;
      Sleep(rank, lock);
    }
  }
}

void ThreadHub::Leave(Rank rank) {
  std::lock_guard lock(mutex_);
  SeatOf(rank).leaving = true;
  if (!meeting_.running && meeting_.arrived > 0) {
    Break(UnavailableError("rank ", rank, " has left the group"), rank);
  }
  NotifyAll();
  Rebuild();
}

void ThreadHub::Abort(const Status& reason) {
  std::lock_guard lock(mutex_);
  Break(AbortedError("the group was aborted: ",
                     reason.ok() ? std::string("no reason was given") : Message(reason)));
}

StatusOr<ThreadHub::Survived> ThreadHub::Survivors(Rank rank, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Seat& seat = SeatOf(rank);
  seat.rebuilding = seat.asked = true;
  Rebuild();
  const auto is_made = [&] { return seat.rebuilt.has_value(); };
  if (deadline.is_infinite()) {
    rebuilt_.wait(lock, is_made);
  } else if (!rebuilt_.wait_until(lock, deadline.time(), is_made)) {
    seat.rebuilding = false;
    std::vector<int> missing, given_up;
    for (int peer = 0; peer < size().value(); ++peer) {
      const Seat& other = SeatOf(Rank(peer));
      if (!other.leaving && !other.asked) missing.push_back(peer);
      if (!other.leaving && !other.rebuilding && peer != rank.value()) given_up.push_back(peer);
    }
    if (missing.empty()) missing = given_up;
    return DeadlineExceededError("rank ", rank, ": ", RankList(missing),
                                 missing.size() == 1 ? " lives" : " live",
                                 ", but did not call for the survivors in time");
  }
  Survived result = *std::move(seat.rebuilt);
  seat.rebuilt.reset();
  return result;
}

/// Once everybody who has not left is there: a new hub for them.
void ThreadHub::Rebuild() {
  Survived survived;
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    if (seats_[rank]->leaving) continue;
    if (!seats_[rank]->rebuilding) return;
    survived.members.push_back(Rank(static_cast<int>(rank)));
  }
  if (survived.members.empty()) return;
  survived.hub = std::make_shared<ThreadHub>(WorldSize(static_cast<int>(survived.members.size())));
  for (const Rank member : survived.members) {
    SeatOf(member).rebuilding = false;
    SeatOf(member).rebuilt = survived;
  }
  rebuilt_.notify_all();
}

StatusOr<std::shared_ptr<ThreadHub>> ThreadHub::Subgroup(WorldSize size, std::uint64_t id) {
  std::lock_guard lock(mutex_);
  if (broken_) return AbortedError("the group failed earlier: ", Message(*broken_));
  const auto [it, is_new] = children_.try_emplace(id);
  auto& [hub, joins_left] = it->second;
  if (is_new) {
    hub = std::make_shared<ThreadHub>(size);
    joins_left = size.value();
  }
  std::shared_ptr<ThreadHub> result = hub;
  if (--joins_left == 0) children_.erase(it);
  return result;
}

void ThreadHub::Notify(Seat& seat) {
  seat.changes.fetch_add(1);
  seat.changed.notify_one();
}

void ThreadHub::NotifyAll() {
  for (const auto& seat : seats_) Notify(*seat);
}

/// The next waiting collective of `rank` comes to the meeting.
void ThreadHub::Arrive(Rank rank) {
  Seat& seat = SeatOf(rank);
  seat.part_done = false;
  seat.current = std::move(seat.waiting.front());
  seat.waiting.pop_front();
  meeting_.operations[static_cast<std::size_t>(rank.value())] = &seat.current->operation;
  if (++meeting_.arrived == size().value()) {
    if (Status status = CompareOperations(meeting_.operations); !status.ok()) {
      return Break(std::move(status));
    }
    meeting_.running = true;
    return NotifyAll();
  }
  for (std::size_t peer = 0; peer < seats_.size(); ++peer) {
    if (seats_[peer]->leaving && meeting_.operations[peer] == nullptr) {
      return Break(UnavailableError("rank ", peer, " has left the group"),
                   Rank(static_cast<int>(peer)));
    }
  }
}

/// Ends the group; the first reason counts. What runs goes on, what waits for somebody ends.
void ThreadHub::Break(Status reason, std::optional<Rank> gone) {
  if (broken_) return;
  broken_ = std::move(reason);
  gone_ = gone;
  NotifyAll();
}

/// What becomes of a task that a broken group, or a rank that leaves, cannot finish.
Status ThreadHub::FailureOf(const Task& task, bool was_current) {
  Seat& seat = SeatOf(task.rank);
  const std::string who = Who(task.rank, task.operation);
  if (task.cancelled) return CancelledError(who, kCancelled);
  if (seat.leaving) return AbortedError(who, ": its communicator was destroyed");
  const bool is_first_loss =
      gone_ && (IsMessage(task.operation.kind) ? task.operation.peer == *gone_
                                               : !std::exchange(seat.told, true));
  const bool is_late =
      broken_->code() == StatusCode::kDeadlineExceeded && task.operation.deadline.expired();
  if (was_current || is_first_loss || is_late) return Annotate(*broken_, who);
  return AbortedError(who, ": the group failed earlier: ", Message(*broken_));
}

/// Who has not arrived, and what was last heard of each.
std::string ThreadHub::MissingText() const {
  std::vector<int> missing;
  std::string last;
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    if (meeting_.operations[rank] != nullptr) continue;
    missing.push_back(static_cast<int>(rank));
    last += StrCat(last.empty() ? "" : "; ", "rank ", rank, " has finished ",
                   seats_[rank]->last ? seats_[rank]->last->Describe() : "nothing yet");
  }
  return StrCat(RankList(missing), " did not come (", last, ")");
}

/// Does one thing that is to be done for `rank`; false if there is nothing.
bool ThreadHub::Progress(Rank rank, std::unique_lock<std::mutex>& lock, std::vector<Ended>& ended) {
  Seat& seat = SeatOf(rank);
  EndMessages(rank, ended);
  BreakIfExpired(rank);
  if (broken_ || seat.leaving) EndBroken(rank, ended);
  if (!seat.deliveries.empty()) {
    Deliver(rank, lock, ended);
    return true;
  }
  if (!seat.current || !meeting_.running || seat.part_done) return false;
  seat.current->work->MarkStarted();
  lock.unlock();
  RunPart(meeting_.operations, rank);  // nobody changes a meeting that runs
  lock.lock();
  seat.part_done = true;
  if (++meeting_.parts_done == size().value()) Complete(ended);
  return true;
}

/// Ends messages of `rank` that nobody has matched: expired, or the peer has left.
void ThreadHub::EndMessages(Rank rank, std::vector<Ended>& ended) {
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    std::deque<Task>& lane = it->second;
    std::erase_if(lane, [&](const Task& task) {
      if (task.rank != rank) return false;
      const Rank peer = task.operation.peer;
      if (!SeatOf(peer).leaving && !task.operation.deadline.expired()) return false;
      const std::string who = Who(rank, task.operation);
      if (SeatOf(peer).leaving) {
        ended.push_back({task.work, UnavailableError(who, ": rank ", peer, " has left the group")});
      } else {
        ended.push_back({task.work, DeadlineExceededError(who, ": the deadline passed: rank ", peer,
                                                          " did not come")});
      }
      return true;
    });
    it = lane.empty() ? lanes_.erase(it) : std::next(it);
  }
}

/// A collective that still waits for somebody is over when its deadline, or that of one behind it,
/// is.
void ThreadHub::BreakIfExpired(Rank rank) {
  const Seat& seat = SeatOf(rank);
  if (!seat.current || meeting_.running || broken_) return;
  const auto expired = [](const Task& task) { return task.operation.deadline.expired(); };
  if (!expired(*seat.current) && std::none_of(seat.waiting.begin(), seat.waiting.end(), expired)) {
    return;
  }
  Break(DeadlineExceededError("the deadline of rank ", rank, " passed: ", MissingText()));
}

/// Ends what a broken group, or leaving it, makes impossible for `rank`.
void ThreadHub::EndBroken(Rank rank, std::vector<Ended>& ended) {
  Seat& seat = SeatOf(rank);
  if (seat.current && !meeting_.running) {
    ended.push_back({seat.current->work, FailureOf(*seat.current, /*was_current=*/true)});
    seat.current.reset();
  }
  const auto end = [&](const Task& task) {
    if (task.rank != rank) return false;
    ended.push_back({task.work, FailureOf(task, /*was_current=*/false)});
    return true;
  };
  std::erase_if(seat.waiting, end);
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    std::erase_if(it->second, end);
    it = it->second.empty() ? lanes_.erase(it) : std::next(it);
  }
}

/// All parts are done: ends the operations of all ranks and opens the next meeting.
void ThreadHub::Complete(std::vector<Ended>& ended) {
  meeting_ = {.operations = std::vector<const Operation*>(seats_.size())};
  for (int r = 0; r < size().value(); ++r) {
    Seat& seat = SeatOf(Rank(r));
    ended.push_back({std::move(seat.current->work), OkStatus()});
    seat.last = std::move(seat.current->operation);
    seat.current.reset();
  }
  for (int r = 0; r < size().value(); ++r) {
    Seat& seat = SeatOf(Rank(r));
    if (!seat.waiting.empty() && !seat.leaving && !broken_) Arrive(Rank(r));
    if (seat.current || seat.leaving || broken_) Notify(seat);
  }
}

/// Matches a send with a receive that waits, or the other way round; or lets it wait.
void ThreadHub::StartMessage(Task task, std::vector<Ended>& ended) {
  const bool is_send = task.operation.kind == OperationKind::kSend;
  const int self = task.rank.value();
  const int peer = task.operation.peer.value();
  const Lane key =
      is_send ? Lane(self, peer, task.operation.tag) : Lane(peer, self, task.operation.tag);
  std::deque<Task>& lane = lanes_[key];
  if (lane.empty() || lane.front().operation.kind == task.operation.kind) {
    lane.push_back(std::move(task));
    return;
  }
  Task other = std::move(lane.front());
  lane.pop_front();
  if (lane.empty()) lanes_.erase(key);
  if (task.operation.Signature() != other.operation.Signature()) {
    const std::string text =
        StrCat("the ranks do not fit: rank ", self, ": ", task.operation.Describe(), "; rank ",
               peer, ": ", other.operation.Describe());
    for (const Task* one : {&task, &other}) {
      ended.push_back(
          {one->work, InvalidArgumentError(Who(one->rank, one->operation), ": ", text)});
    }
    return;
  }
  Task& send = is_send ? task : other;
  Task& receive = is_send ? other : task;
  ++SeatOf(send.rank).lent;
  Seat& receiver = SeatOf(receive.rank);
  receiver.deliveries.push_back({std::move(send), std::move(receive)});
  Notify(receiver);
}

void ThreadHub::Deliver(Rank rank, std::unique_lock<std::mutex>& lock, std::vector<Ended>& ended) {
  Seat& seat = SeatOf(rank);
  const Delivery delivery = std::move(seat.deliveries.front());
  seat.deliveries.pop_front();
  lock.unlock();
  delivery.send.work->MarkStarted();
  delivery.receive.work->MarkStarted();
  CopyElements(delivery.send.operation.input, delivery.receive.operation.output);
  lock.lock();
  ended.push_back({delivery.send.work, OkStatus()});
  ended.push_back({delivery.receive.work, OkStatus()});
  Seat& sender = SeatOf(delivery.send.rank);
  --sender.lent;
  if (sender.leaving) Notify(sender);
}

/// A message that waits is taken back; a collective that waits breaks the group; what runs, ends.
void ThreadHub::Cancel(Rank rank, const WorkState* work) {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    Seat& seat = SeatOf(rank);
    const auto is_meant = [&](const Task& task) { return task.work.get() == work; };
    for (auto& [key, lane] : lanes_) {
      std::erase_if(lane, [&](const Task& task) {
        if (!is_meant(task)) return false;
        ended.push_back({task.work, CancelledError(Who(rank, task.operation), kCancelled)});
        return true;
      });
    }
    Task* task = nullptr;
    if (seat.current && is_meant(*seat.current) && !meeting_.running) task = &*seat.current;
    for (Task& waiting : seat.waiting) {
      if (is_meant(waiting)) task = &waiting;
    }
    if (task != nullptr && !broken_) {
      task->cancelled = true;
      Break(AbortedError(Who(rank, task->operation), " was cancelled"));
    }
  }
  for (const Ended& end : ended) end.work->Finish(end.status);
}

Deadline ThreadHub::NextDeadline(Rank rank) {
  const Seat& seat = SeatOf(rank);
  Time next = Time::max();
  const auto consider = [&](const Task& task) {
    next = std::min(next, task.operation.deadline.time());
  };
  if (seat.current && !meeting_.running) {
    consider(*seat.current);
    for (const Task& task : seat.waiting) consider(task);
  }
  for (const auto& [key, lane] : lanes_) {
    for (const Task& task : lane) {
      if (task.rank == rank) consider(task);
    }
  }
  return Deadline::At(next);
}

/// Until something changes for `rank`, or a deadline comes.
void ThreadHub::Sleep(Rank rank, std::unique_lock<std::mutex>& lock) {
  constexpr int kYields = 20;  // peers are often about to come: falling asleep costs more
  Seat& seat = SeatOf(rank);
  const std::uint64_t seen = seat.changes.load();
  const auto changed = [&] { return seat.changes.load() != seen; };
  const Deadline deadline = NextDeadline(rank);
  lock.unlock();
  for (int i = 0; i < kYields && !changed(); ++i) std::this_thread::yield();
  lock.lock();
  if (deadline.is_infinite()) {
    seat.changed.wait(lock, changed);
  } else {
    seat.changed.wait_until(lock, deadline.time(), changed);
  }
}

}  // namespace ait::inline v0::internal
