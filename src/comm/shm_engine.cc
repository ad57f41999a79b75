// SPDX-License-Identifier: Apache-2.0
#include "comm/shm_engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/operation_check.h"
#include "comm/operation_compare.h"
#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kYields = 200;          // before the first sleep of a thread that waits
constexpr int kInlineYields = 64;     // before a call gives an operation away
constexpr Bytes kInline = MiB(1);     // larger operations are never run within the call
constexpr milliseconds kLook(20);     // how often a sleeping thread looks whether peers live
constexpr milliseconds kGrace(1000);  // for peers that may still touch a buffer

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ShmEngine::ShmEngine(std::shared_ptr<ShmGroup> group)
    : group_(std::move(group)), rank_(group_->rank()), collective_(*group_), messages_(*group_) {}

std::shared_ptr<WorkState> ShmEngine::MakeState() {
  auto state = std::make_shared<WorkState>();
  state->SetHelper(weak_from_this());
  state->OnCancel([engine = weak_from_this(), work = std::weak_ptr<WorkState>(state)] {
    const std::shared_ptr<ShmEngine> alive = engine.lock();
    const std::shared_ptr<WorkState> meant = work.lock();
    if (alive && meant) alive->Cancel(meant);
  });
  return state;
}

Work ShmEngine::Start(Operation operation) {
  if (group_->fabric().forked()) {
    return Work(FailedPreconditionError(
        "rank ", rank_, ": ", operation.Describe(),
        ": this process was forked from a rank; only the rank itself can use its communicator"));
  }
  const bool is_message = IsMessage(operation.kind);
  const bool is_small = operation.input.bytes() <= kInline && operation.output.bytes() <= kInline;
  if (!is_message && is_small && queued_.load(std::memory_order_acquire) == 0 && TryTake()) {
    if (!current_ && waiting_.empty() && !over_ && !group_->broken() &&
        !leaving_.load(std::memory_order_relaxed)) {
      current_.emplace(Task{std::move(operation), nullptr});
      started_ = false;
      collective_.Begin(current_->operation);
      for (int idle = 0; idle < patience_.loads() + kInlineYields; ++idle) {
        const ShmCollective::Progress progress = collective_.Advance();
        if (progress == ShmCollective::Progress::kDone) {
          patience_.CameAfter(idle);
          current_.reset();
          Release();
          return Work();
        }
        if (progress == ShmCollective::Progress::kMismatch) break;
        if (progress == ShmCollective::Progress::kMoved) {
          patience_.CameAfter(std::exchange(idle, -1));
        } else if (idle < patience_.loads()) {
          Pause();
        } else {
          std::this_thread::yield();
        }
      }
      std::shared_ptr<WorkState> state = MakeState();
      current_->work = state;
      busy_.store(true, std::memory_order_release);
      Release();
      WakeThread();
      return Work(std::move(state));
    }
    Release();
  }
  std::shared_ptr<WorkState> state = MakeState();
  {
    const std::lock_guard lock(mutex_);
    incoming_.push_back({std::move(operation), state});
    queued_.fetch_add(1, std::memory_order_seq_cst);
  }
  WakeThread();
  return Work(std::move(state));
}

void ShmEngine::Abort(const Status& reason) {
  if (group_->fabric().forked()) return;
  group_->Break(AbortedError("the group was aborted: ",
                             reason.ok() ? std::string("no reason was given") : Message(reason)));
  WakeThread();
}

void ShmEngine::Leave() {
  if (group_->fabric().forked()) {
    if (thread_.joinable()) thread_.detach();  // it was not forked
    return;
  }
  leaving_.store(true, std::memory_order_seq_cst);
  WakeThread();
  Poke();
  {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  if (thread_.joinable()) {
    if (OnOwnThread() || driver_.load() == std::this_thread::get_id()) {
      // A callback dropped the communicator, on the thread or on one that waits: the thread, which
      // owns what it needs, ends what is left when the wheel is free.
      thread_.detach();
    } else {
      thread_.join();
    }
  } else if (TryTake()) {  // nobody else would end what is in flight
    Fail();
    Deliver();
    Release();
  }
}

// Gives the wheel back; what is left is the thread's.
void ShmEngine::Release() {
  busy_.store(current_ || !waiting_.empty() || messages_.pending(), std::memory_order_release);
  taken_.store(false, std::memory_order_seq_cst);
  if (helpers_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
}

bool ShmEngine::HasWork() {
  return queued_.load(std::memory_order_acquire) > 0 || busy_.load(std::memory_order_acquire);
}

// Has the thread look, unless somebody is awake who will.
void ShmEngine::WakeThread() {
  Poke();
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable() && !leaving_.load(std::memory_order_relaxed)) {
    StatusOr<std::thread> thread =
        StartOwnThread(StrCat("rank ", rank_), [self = shared_from_this()] { self->Run(); });
    if (thread.ok()) thread_ = *std::move(thread);  // else whoever waits does the work
  }
  if (asleep_) wake_.notify_one();
}

// Wakes whoever holds the wheel and sleeps.
void ShmEngine::Poke() {
  if (dozing_.load(std::memory_order_seq_cst)) group_->WakeSleepers();
}

void ShmEngine::Run() {
  constexpr microseconds kNap(200);
  constexpr int kNaps = 5;
  int naps = kNaps;  // left: an operation that was started need not wake a thread that naps
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto called = [&] {
        return leaving_.load(std::memory_order_relaxed) ||
               (HasWork() && !taken_.load(std::memory_order_relaxed) &&
                helpers_.load(std::memory_order_relaxed) == 0);
      };
      if (!called() && naps > 0) {
        --naps;
        wake_.wait_for(lock, kNap, [&] { return leaving_.load(std::memory_order_relaxed); });
        if (!called()) continue;
      } else if (!called()) {
        asleep_ = true;
        // Whoever takes the wheel and leaves something undone wakes this thread by `WakeThread`
        // or goes through `Help`, which does; a look now and then costs nothing.
        wake_.wait_for(lock, HasWork() ? milliseconds(1) : milliseconds(500), called);
        asleep_ = false;
        if (!called()) continue;
      }
    }
    if (!TryTake()) continue;
    naps = kNaps;
    const bool leaving = leaving_.load(std::memory_order_seq_cst);
    if (leaving) {
      Fail();
      Deliver();
      Release();
      return;
    }
    Drive(Patience::kBackground, Deadline::Infinite(), [&] {
      return leaving_.load(std::memory_order_relaxed) ||
             helpers_.load(std::memory_order_relaxed) > 0 ||
             (!current_ && waiting_.empty() && queued_.load(std::memory_order_acquire) == 0 &&
              !messages_.pending());
    });
    Release();
  }
}

void ShmEngine::Help(const WorkState& state, Deadline deadline) {
  if (group_->fabric().forked()) return;
  helpers_.fetch_add(1, std::memory_order_seq_cst);
  while (!state.done() && !deadline.expired() && !leaving_.load(std::memory_order_relaxed)) {
    if (TryTake()) {
      Drive(Patience::kWaiter, deadline,
            [&] { return state.done() || leaving_.load(std::memory_order_relaxed); });
      Release();
      continue;
    }
    Poke();
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, std::min(deadline.time(), SystemClock().now() + milliseconds(5)),
                        [&] { return state.done() || !taken_.load(std::memory_order_seq_cst); });
  }
  helpers_.fetch_sub(1, std::memory_order_seq_cst);
  if (HasWork()) WakeThread();
}

template <typename Enough>
void ShmEngine::Drive(Patience patience, Deadline deadline, const Enough& enough) {
  driver_.store(std::this_thread::get_id());
  Turn(patience, deadline, enough);
  driver_.store(std::thread::id());
}

template <typename Enough>
void ShmEngine::Turn(Patience patience, Deadline deadline, const Enough& enough) {
  const int yields = patience == Patience::kWaiter ? kYields : 0;
  int idle = 0;
  while (!enough()) {
    if (Step()) {
      patience_.CameAfter(std::exchange(idle, 0));
      Deliver();
      continue;
    }
    if (++idle < patience_.loads()) {
      Pause();
      continue;
    }
    const int sleep_at = patience_.loads() + yields;
    if (idle % 16 == 0 || idle >= sleep_at) {
      CheckFaults();
      Deliver();
      if (enough()) return;
      if (deadline.expired()) return;
    }
    if (idle < sleep_at) {
      std::this_thread::yield();
      continue;
    }
    group_->BeginDoze();
    dozing_.store(true, std::memory_order_seq_cst);
    const std::uint32_t bell = group_->header().bell.load(std::memory_order_seq_cst);
    if (Step()) {
      idle = 0;
    } else if (!enough() && queued_.load(std::memory_order_seq_cst) == 0) {
      const Duration most = std::min<Duration>(deadline.remaining(), UntilNextFault());
      group_->Sleep(bell, most);
    }
    dozing_.store(false, std::memory_order_seq_cst);
    group_->EndDoze();
    Deliver();
  }
}

// One thing that can be done now; false if there is none.
bool ShmEngine::Step() {
  if (queued_.load(std::memory_order_acquire) > 0) {
    const std::lock_guard lock(mutex_);
    for (Task& task : incoming_) {
      if (!over_ && IsMessage(task.operation.kind)) {
        messages_.Start(std::move(task.operation), std::move(task.work));
      } else {
        waiting_.push_back(std::move(task));
      }
    }
    queued_.fetch_sub(static_cast<int>(incoming_.size()), std::memory_order_release);
    incoming_.clear();
  }
  if (over_) {
    if (waiting_.empty()) return false;
    Fail();
    return true;
  }
  if (group_->broken()) {
    if (!broken_at_) {
      broken_at_ = SystemClock().now();
      group_->own().ended.store(1, std::memory_order_seq_cst);
      group_->WakeSleepers();
    }
    // Nobody's memory is touched after its operation has ended. All may have come to this operation
    // before one of them broke the group in a later one, or while it did: once it is quiet that will
    // not change, so the last look comes after, and all ranks see the same.
    const bool is_quiet = !current_ || collective_.IsQuiet();
    while (current_ && !described_) {
      const ShmCollective::Progress progress = collective_.Advance();
      if (progress == ShmCollective::Progress::kDone) {
        EndCurrent(OkStatus());
        return true;
      }
      if (progress != ShmCollective::Progress::kMoved) break;
    }
    if (!is_quiet && SystemClock().now() < QuietBy()) return false;
    Fail();
    return true;
  }
  const bool moved = messages_.pending() && messages_.Advance(ended_);
  return StepCollective() || moved;
}

// Until when peers are waited for that may still touch a buffer: a second, of which a rank whose
// deadline has passed has waited already.
Time ShmEngine::QuietBy() const {
  constexpr milliseconds kAtLeast(50);
  const Time latest = *broken_at_ + kGrace;
  const Deadline deadline = current_->operation.deadline;
  if (deadline.is_infinite() || deadline.time() > latest) return latest;
  return std::min(latest, std::max(deadline.time() + kGrace, *broken_at_ + kAtLeast));
}

bool ShmEngine::StepCollective() {
  bool moved = false;
  if (!current_) {
    if (waiting_.empty()) return false;
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    started_ = false;
    collective_.Begin(current_->operation);
    moved = true;
  }
  if (described_) {
    bool ready = false;
    const Status status = collective_.Compare(ready);
    if (!ready && SystemClock().now() < *described_ + kGrace) return moved;
    group_->Break(status);
    return true;
  }
  switch (collective_.Advance()) {
    case ShmCollective::Progress::kWaiting:
      return moved;
    case ShmCollective::Progress::kMoved:
      break;
    case ShmCollective::Progress::kDone:
      EndCurrent(OkStatus());
      break;
    case ShmCollective::Progress::kMismatch:
      collective_.DescribeOwn();
      described_ = SystemClock().now();
      return true;
  }
  if (current_ && !std::exchange(started_, true) && current_->work) current_->work->MarkStarted();
  return true;
}

void ShmEngine::EndCurrent(Status status) {
  if (current_->work) {
    if (!started_ && status.ok()) current_->work->MarkStarted();
    ended_.push_back({std::move(current_->work), std::move(status)});
  }
  current_.reset();
}

// Ends works whose end was found; callbacks run here, with the wheel but without a lock.
void ShmEngine::Deliver() {
  while (!ended_.empty()) {
    std::vector<Ended> ended;
    ended.swap(ended_);
    for (Ended& end : ended) end.work->Finish(std::move(end.status));
    if (helpers_.load(std::memory_order_relaxed) > 0) {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
  }
}

std::string ShmEngine::MissingText() {
  const std::vector<int> missing = collective_.Missing();
  std::string text;
  for (const int rank : missing) text += StrCat(text.empty() ? "" : "; ", group_->Describe(rank));
  return StrCat(missing.empty() ? "no rank" : RankList(missing), " did not come (", text, ")");
}

// Looks for what ends an operation early: deadlines, deaths, cancellations.
void ShmEngine::CheckFaults() {
  if (over_ || group_->broken()) return;
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<WorkState>& work : cancelled_) {
      if (messages_.Cancel(work.get(), ended_)) continue;
      const auto is_meant = [&](const Task& task) { return task.work == work; };
      Task* task = current_ && is_meant(*current_) && !collective_.has_met() ? &*current_ : nullptr;
      for (Task& waiting : waiting_) {
        if (is_meant(waiting)) task = &waiting;
      }
      if (task == nullptr) continue;
      task->cancelled = true;
      group_->Break(
          AbortedError("rank ", rank_, ": ", task->operation.Describe(), " was cancelled"));
    }
    cancelled_.clear();
  }
  if (Status stuck = messages_.CheckFaults(ended_); !stuck.ok()) return group_->Break(stuck);
  if (!current_ || described_) return;
  const std::vector<int> missing = collective_.Missing();
  for (const int peer : missing) {
    if (!group_->IsGone(peer)) continue;
    // It may have come, or finished, and then left.
    const std::vector<int> still = collective_.Missing();
    if (std::ranges::find(still, peer) == still.end()) return;
    const bool died = group_->IsDead(peer);
    return group_->Break(UnavailableError("rank ", peer, died ? " has died" : " has left the group",
                                          " (", group_->Describe(peer), ")"));
  }
  Time limit = current_->operation.deadline.time();
  if (collective_.has_met()) {
    if (limit < Time::max() - kGrace) limit += kGrace;  // it runs: soon it is over
  } else {
    for (const Task& task : waiting_) limit = std::min(limit, task.operation.deadline.time());
  }
  if (missing.empty() || SystemClock().now() < limit) return;
  group_->Break(DeadlineExceededError("the deadline of rank ", rank_, " passed: ", MissingText()));
}

// How long a sleep may last.
Duration ShmEngine::UntilNextFault() {
  Time next = std::min(SystemClock().now() + kLook, messages_.NextDeadline().time());
  if (current_) next = std::min(next, current_->operation.deadline.time());
  for (const Task& task : waiting_) next = std::min(next, task.operation.deadline.time());
  return std::max<Duration>(microseconds(100), next - SystemClock().now());
}

Status ShmEngine::FailureOf(const Operation& operation, bool was_current, bool cancelled) {
  const std::string who = StrCat("rank ", rank_, ": ", operation.Describe());
  if (cancelled) return CancelledError(who, ": cancelled by the caller");
  if (leaving_.load(std::memory_order_relaxed)) {
    return AbortedError(who, ": its communicator was destroyed");
  }
  const Status reason = group_->reason();
  const bool is_loss = reason.code() == StatusCode::kUnavailable;
  const bool is_first_loss = is_loss && !IsMessage(operation.kind) && !std::exchange(told_, true);
  const bool is_late =
      reason.code() == StatusCode::kDeadlineExceeded && operation.deadline.expired();
  const bool is_loss_of_peer =
      is_loss && IsMessage(operation.kind) &&
      (group_->IsGone(operation.peer.value()) || group_->breaker() == operation.peer.value());
  if (was_current || is_first_loss || is_loss_of_peer || is_late) return Annotate(reason, who);
  return AbortedError(who, ": the group failed earlier: ", Message(reason));
}

// Ends all that this rank has, after the group has broken or because it goes.
void ShmEngine::Fail() {
  if (!leaving_.load(std::memory_order_relaxed)) over_ = true;
  const bool leaving = leaving_.load(std::memory_order_relaxed);
  if (leaving && !std::exchange(over_, true)) {
    // Peers that have met with this rank are not left alone in the middle; others are told.
    const Time limit = SystemClock().now() + kGrace;
    while (current_ && collective_.has_met() && !group_->broken() && SystemClock().now() < limit) {
      if (collective_.Advance() == ShmCollective::Progress::kDone) EndCurrent(OkStatus());
      std::this_thread::yield();
    }
    while (messages_.lends() && SystemClock().now() < limit) {
      if (!messages_.Advance(ended_)) std::this_thread::yield();
    }
    if (current_) group_->Break(UnavailableError("rank ", rank_, " has left the group"));
    group_->Leave();
    const Time quiet = SystemClock().now() + kGrace;
    while (current_ && !collective_.IsQuiet() && SystemClock().now() < quiet) {
      std::this_thread::yield();
    }
  }
  if (current_) EndCurrent(FailureOf(current_->operation, true, current_->cancelled));
  for (Task& task : waiting_) {
    if (task.work) {
      ended_.push_back({task.work, FailureOf(task.operation, false, task.cancelled)});
    }
  }
  waiting_.clear();
  {
    const std::lock_guard lock(mutex_);
    for (Task& task : incoming_) {
      ended_.push_back({task.work, FailureOf(task.operation, false, task.cancelled)});
    }
    queued_.fetch_sub(static_cast<int>(incoming_.size()), std::memory_order_release);
    incoming_.clear();
  }
  messages_.EndAll([&](const Operation& operation) { return FailureOf(operation, false, false); },
                   ended_);
}

void ShmEngine::Cancel(const std::shared_ptr<WorkState>& work) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(work);
  }
  if (TryTake()) {
    if (!Step()) CheckFaults();
    CheckFaults();
    Deliver();
    Release();
  }
  WakeThread();
}

}  // namespace ait::inline v0::internal
