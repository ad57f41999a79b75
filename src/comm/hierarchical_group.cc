// SPDX-License-Identifier: Apache-2.0
#include "comm/hierarchical_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/operation_check.h"
#include "comm/operation_compare.h"
#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

// How often a wait looks for deaths and deadlines.
constexpr milliseconds kSlice{50};
// An operation that takes longer tells the others where it is, and looks again this often.
constexpr milliseconds kStuck{250};
constexpr milliseconds kLookAgain{500};
// How long the others' word is waited for, once something is known to be wrong.
constexpr milliseconds kHearing{300};
constexpr milliseconds kFailureHearing{2000};
constexpr milliseconds kPause{10};
// How long after a deadline the operation ends at the latest, though the store tells nothing.
constexpr milliseconds kGrace{1000};
// How much later the groups inside would find out, if this thread did not.
constexpr std::chrono::seconds kStepGrace{60};

constexpr std::uint64_t kSignatureBits = 20;

thread_local int ends_here = 0;

Deadline Later(Deadline deadline) {
  return deadline.is_infinite() || deadline.time() > Time::max() - kStepGrace
             ? Deadline::Infinite()
             : Deadline::At(deadline.time() + kStepGrace);
}

}  // namespace

HierarchicalGroup::HierarchicalGroup(PatientThread& patient, Options options, Transports transports)
    : patient_(patient),
      options_(std::move(options)),
      transports_(std::move(transports)),
      tcp_store_(dynamic_cast<TcpStore*>(options_.store.get())),
      reports_(std::make_shared<RankReports>(options_.store, options_.name, options_.rank,
                                             WorldSize(options_.layout.size()))),
      collectives_(*this, {.rank = options_.rank.value(),
                           .layout = options_.layout,
                           .tuning = options_.tuning,
                           .memory = memory()}) {}

StatusOr<std::shared_ptr<HierarchicalGroup>> HierarchicalGroup::Create(PatientThread& patient,
                                                                       Options options,
                                                                       Transports transports) {
  std::shared_ptr<HierarchicalGroup> group(
      new HierarchicalGroup(patient, std::move(options), std::move(transports)));
  AIT_ASSIGN_OR_RETURN(group->thread_, StartOwnThread(StrCat("the group ", group->options_.name),
                                                      [raw = group.get()] { raw->Run(); }));
  if (group->tcp_store_ != nullptr) {
    group->watch_ = group->tcp_store_->Watch(
        group->reports_->end_key(),
        [weak = std::weak_ptr<HierarchicalGroup>(group)](const std::string& text) {
          if (const auto alive = weak.lock()) {
            alive->End(RankReports::ParseEnd(text), Telling::kPeersKnow);
          }
        });
  }
  return group;
}

bool HierarchicalGroup::EndsHere() { return ends_here > 0; }

void HierarchicalGroup::Close() {
  if (tcp_store_ != nullptr) tcp_store_->Unwatch(watch_);
  std::unique_lock lock(mutex_);
  closing_ = true;
  told_ = true;
  if (ended_.ok()) ended_ = AbortedError("rank ", options_.rank, " has left the group");
  changed_.notify_all();
  changed_.wait(lock, [&] { return ending_ == 0; });
  lock.unlock();
  thread_.join();
  patient_.Do([reports = reports_, finished = finished_] { reports->PostLeft(finished); });
  for (auto& transport : transports_) transport.reset();  // ends the steps that still run
  for (const Step& step : steps_) step.work.Wait().IgnoreError();
  if (current_ != nullptr) queue_.push_front(std::move(current_));
  for (const JobPtr& job : std::exchange(queue_, {})) {
    lock.lock();
    Status status = FailureOf(*job);
    lock.unlock();
    job->state->Finish(std::move(status));
  }
}

MemoryHandle HierarchicalGroup::memory() const {
  const auto& inside = transports_[static_cast<std::size_t>(Line::kInside)];
  return inside == nullptr ? MemoryHandle() : inside->memory();
}

void HierarchicalGroup::Note(std::int64_t step, std::string_view phase) {
  for (const auto& transport : transports_) {
    if (transport != nullptr) transport->Note(step, phase);
  }
}

StatusOr<std::unique_ptr<Transport>> HierarchicalGroup::Subgroup(Line line,
                                                                 std::span<const Rank> members,
                                                                 std::uint64_t id,
                                                                 Deadline deadline) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return AbortedError("the group ended: ", Message(ended_));
  }
  std::lock_guard lock(start_mutexes_[static_cast<std::size_t>(line)]);
  return At(line).Subgroup(members, id, deadline);
}

Work HierarchicalGroup::Start(Operation operation) {
  if (IsMessage(operation.kind)) return StartMessage(std::move(operation));
  auto job = std::make_shared<Job>();
  job->operation = std::move(operation);
  job->state = std::make_shared<WorkState>();
  job->state->OnCancel([group = weak_from_this(), weak = std::weak_ptr<Job>(job)] {
    const auto alive = group.lock();  // it may close meanwhile
    if (const JobPtr mine = weak.lock(); alive != nullptr && mine != nullptr) alive->Cancel(mine);
  });
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return Work(FailureOf(*job));
    queue_.push_back(job);
  }
  changed_.notify_all();
  return Work(job->state);
}

void HierarchicalGroup::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (closing_) return;  // `Close` ends what is left
    const JobPtr job = queue_.front();
    queue_.pop_front();
    current_ = job;
    const bool ended = !ended_.ok();
    lock.unlock();
    Status status = ended ? ended_ : RunJob(*job);  // written once
    if (!status.ok() && !ended) FindCause(job, status);
    lock.lock();
    if (closing_ && !status.ok()) return;
    if (status.ok()) {
      finished_ = job->operation.sequence;
    } else {
      lock.unlock();
      for (const Step& step : steps_) step.work.Wait().IgnoreError();  // they were aborted
      steps_.clear();
      lock.lock();
      status = FailureOf(*job);
    }
    current_ = nullptr;
    lock.unlock();
    job->state->Finish(std::move(status));
    lock.lock();
  }
}

Status HierarchicalGroup::RunJob(Job& job) {
  job.state->MarkStarted();
  job.started = SystemClock().now();
  job.look_again = job.started + kStuck;
  job.description = job.operation.Describe();
  signature_ = job.operation.Signature();
  step_deadline_ = Later(job.operation.deadline);
  if (EndIfSomeoneDied()) return UnavailableError("a rank died");
  return collectives_.Run(job.operation);
}

Work HierarchicalGroup::Begin(Line line, Operation operation) {
  const auto index = static_cast<std::size_t>(line);
  operation.deadline = step_deadline_;
  if (line != Line::kAll) {
    constexpr std::uint64_t kMask = (std::uint64_t{1} << kSignatureBits) - 1;
    operation.sequence = (++step_counts_[index] << kSignatureBits) | (signature_ & kMask);
    operation.label = current_->description;  // changed by this thread only
  }
  std::lock_guard lock(start_mutexes_[index]);
  Work work = At(line).Start(std::move(operation));
  steps_.push_back({work, line});
  return work;
}

Status HierarchicalGroup::Await(const Work& work) {
  while (!work.done()) {
    if (work.Wait(Deadline::After(kSlice)).ok() || work.done()) break;
    AIT_RETURN_IF_ERROR(LookAround());
  }
  AIT_RETURN_IF_ERROR(work.Wait());
  std::erase_if(steps_, [](const Step& step) { return step.work.done() && step.work.Wait().ok(); });
  return OkStatus();
}

/// What a rank that waits for a step sees: an error ends the wait, not the step.
Status HierarchicalGroup::LookAround() {
  if (EndIfSomeoneDied()) return UnavailableError("a rank died");
  const Time now = SystemClock().now();
  JobPtr job;
  Time due{};
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return ended_;
    job = current_;
    due = job->operation.deadline.time();
    for (const JobPtr& queued : queue_) due = std::min(due, queued->operation.deadline.time());
  }
  if (now >= due) {
    if (job->asked != Cause::kExpired) {
      job->asked = Cause::kExpired;
      AskDiagnosis(job, Cause::kExpired);
    } else if (++job->late_slices >= kGrace / kSlice) {  // the process may have stood still
      End(DeadlineExceededError("rank 0 of the world, which serves the store, does not answer in ",
                                "time to tell who is missing: ", job->description),
          Telling::kPublish);
    }
  } else if (now >= job->look_again && !diagnosing_) {
    job->look_again = now + kLookAgain;
    AskDiagnosis(job, Cause::kStuck);
  }
  return OkStatus();
}

bool HierarchicalGroup::EndIfSomeoneDied() {
  if (tcp_store_ == nullptr) return false;
  for (const Rank dead : tcp_store_->departed()) {
    const auto found = std::find(options_.members.begin(), options_.members.end(), dead);
    if (found == options_.members.end()) continue;
    const auto rank = found - options_.members.begin();
    const bool renamed = rank != dead.value();
    End(UnavailableError("rank ", rank, renamed ? StrCat(" (", dead, " of the world)") : "",
                         " died"),
        Telling::kPeersKnow);
    return true;
  }
  return false;
}

/// Sees to it that the group has ended, with the best reason that can be found.
void HierarchicalGroup::FindCause(const JobPtr& job, const Status& status) {
  if (const std::optional<Status> reason = DecodeReason(status)) {
    return End(*reason, Telling::kPeersKnow);
  }
  const auto failed = std::find_if(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.work.done() && !step.work.Wait().ok();
  });
  const std::string where = failed == steps_.end() ? "" : Numbers(failed->line);
  // The transport of all ranks names them rightly, and has compared the operations.
  const bool is_told = failed != steps_.end() && failed->line == Line::kAll &&
                       status.code() == StatusCode::kInvalidArgument;
  if (!is_told) {
    std::unique_lock lock(mutex_);
    if (!ended_.ok()) return;
    lock.unlock();
    AskDiagnosis(job, Cause::kFailed);
    lock.lock();
    for (int slice = 0; slice < 3 * kFailureHearing / kSlice && ended_.ok(); ++slice) {
      changed_.wait_for(lock, kSlice, [&] { return !ended_.ok(); });
      lock.unlock();
      EndIfSomeoneDied();  // rank 0 among them, and with it the store
      lock.lock();
    }
  }
  End(Status(status.code(), where + Message(status)), Telling::kPublish);
}

/// Which ranks the numbers in an error of a group inside mean.
std::string HierarchicalGroup::Numbers(Line line) const {
  if (line == Line::kAll) return "";
  const HostLayout& layout = options_.layout;
  const auto self = static_cast<std::size_t>(options_.rank.value());
  std::vector<int> ranks = layout.hosts[static_cast<std::size_t>(layout.host_of[self])];
  if (line == Line::kColumn) {
    ranks.clear();
    for (const auto& host : layout.hosts) {
      ranks.push_back(host[static_cast<std::size_t>(layout.local_of[self])]);
    }
  }
  return StrCat(line == Line::kInside ? "inside this host" : "between hosts", ", where ranks 0 to ",
                ranks.size() - 1, " are ", RankList(ranks), " of this group: ");
}

Status HierarchicalGroup::FailureOf(Job& job) {
  const std::string what = StrCat("rank ", options_.rank, ": ", job.operation.Describe(), ": ");
  if (job.cancelled) return CancelledError(what, "cancelled");
  if (std::exchange(told_, true)) {
    return AbortedError(what, "the group ended: ", Message(ended_));
  }
  return Status(ended_.code(), what + Message(ended_));
}

void HierarchicalGroup::End(const Status& reason, Telling telling) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return;
    ended_ = reason;
    // Nobody is there to be told of a failure of others' operations; a death is told by the next.
    told_ = current_ == nullptr && reason.code() != StatusCode::kUnavailable;
    ++ending_;
  }
  Log(options_.tuning.log, Severity::kInfo, "hierarchical",
      StrCat("rank ", options_.rank, " of group ", options_.name, ": ended: ", Message(reason)));
  changed_.notify_all();
  if (telling == Telling::kPublish) {
    patient_.Do([reports = reports_, reason] { reports->PostEnd(reason); });
  }
  const Status coded = CodeReason(reason);
  ++ends_here;
  for (const auto& transport : transports_) {
    if (transport != nullptr) transport->Abort(coded);
  }
  --ends_here;
  std::lock_guard lock(mutex_);
  --ending_;
  changed_.notify_all();
}

void HierarchicalGroup::Abort(const Status& reason) {
  End(AbortedError("the group was aborted: ",
                   reason.ok() ? std::string("no reason was given") : Message(reason)),
      Telling::kPublish);
}

void HierarchicalGroup::Cancel(const JobPtr& job) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return;  // it ends anyway
    job->cancelled = true;
  }
  End(AbortedError("rank ", options_.rank, " cancelled ", job->operation.Describe()),
      Telling::kPublish);
}

void HierarchicalGroup::AskDiagnosis(const JobPtr& job, Cause cause) {
  diagnosing_ = true;
  patient_.Do([weak = weak_from_this(), job, cause] {
    if (const auto alive = weak.lock()) {
      alive->Diagnose(job, cause);
      alive->diagnosing_ = false;
    }
  });
}

bool HierarchicalGroup::IsOver(const JobPtr& job) {
  std::lock_guard lock(mutex_);
  return closing_ || !ended_.ok() || current_ != job;
}

void HierarchicalGroup::Diagnose(const JobPtr& job, Cause cause) {
  if (IsOver(job)) return;
  RankReports::Record own{.sequence = job->operation.sequence,
                          .signature = job->operation.Signature(),
                          .description = job->operation.Describe()};
  {
    std::lock_guard lock(mutex_);
    own.finished = finished_;
  }
  if (EndIfSomeoneDied()) return;
  if (!std::exchange(job->posted, true) && !reports_->Post(own).ok()) return;
  // Counted, not timed: a process that stood still for a while has not heard anything then.
  auto looks = (cause == Cause::kFailed    ? kFailureHearing
                : cause == Cause::kExpired ? kHearing
                                           : milliseconds(0)) /
               kPause;
  const int rank = options_.rank.value();
  RankReports::Records records{{rank, own}};
  bool mismatch = false;
  while (true) {
    if (EndIfSomeoneDied() || IsOver(job)) return;
    if (const std::optional<Status> end = reports_->ReadEnd()) {
      return End(*end, Telling::kPeersKnow);
    }
    if (const std::optional<int> left = reports_->WhoLeft(own.sequence)) {
      return End(UnavailableError("rank ", *left, " has left the group"), Telling::kPublish);
    }
    for (auto& [peer, record] : reports_->Read()) records.insert_or_assign(peer, std::move(record));
    const bool all_are_here = static_cast<int>(records.size()) == options_.layout.size() &&
                              std::all_of(records.begin(), records.end(), [&](const auto& entry) {
                                return entry.second.sequence == own.sequence;
                              });
    const bool disagree = std::any_of(records.begin(), records.end(), [&](const auto& entry) {
      return RankReports::Disagree(entry.second, own);
    });
    if (disagree && !std::exchange(mismatch, true)) {
      looks = (kStuck + kHearing) / kPause;  // the others get stuck too
    }
    if (--looks < 0 || (all_are_here && (mismatch || cause == Cause::kExpired))) break;
    std::this_thread::sleep_for(kPause);
  }
  if (IsOver(job)) return;
  if (mismatch) return End(RankReports::Mismatch(records, rank), Telling::kPublish);
  if (cause != Cause::kExpired) return;
  End(RankReports::Missing(records, own, WorldSize(options_.layout.size())), Telling::kPublish);
}

Work HierarchicalGroup::StartMessage(Operation operation) {
  const HostLayout& layout = options_.layout;
  const auto peer = static_cast<std::size_t>(operation.peer.value());
  const auto self = static_cast<std::size_t>(options_.rank.value());
  const Line line = layout.host_of[peer] == layout.host_of[self] ? Line::kInside : Line::kAll;
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) {
      return Work(AbortedError("rank ", options_.rank, ": ", operation.Describe(),
                               ": the group ended: ", Message(ended_)));
    }
  }
  Operation below = operation;
  if (line == Line::kInside) below.peer = Rank(layout.local_of[peer]);
  const auto start = [&] {
    std::lock_guard lock(start_mutexes_[static_cast<std::size_t>(line)]);
    return At(line).Start(std::move(below));
  };
  const Work work = start();
  auto state = std::make_shared<WorkState>();
  state->OnCancel([work] { work.Cancel(); });
  work.Then([weak = weak_from_this(), state, operation = std::move(operation),
             line](const Status& status) {
    const auto alive = status.ok() ? nullptr : weak.lock();
    state->Finish(alive == nullptr ? status : alive->MessageFailure(operation, line, status));
  });
  return Work(state);
}

/// The failure of a message, in the ranks of this group.
Status HierarchicalGroup::MessageFailure(const Operation& operation, Line line,
                                         const Status& status) {
  const std::string what = StrCat("rank ", options_.rank, ": ", operation.Describe(), ": ");
  const std::optional<Status> reason = DecodeReason(status);
  if (reason) End(*reason, Telling::kPeersKnow);
  Status ended;
  {
    std::lock_guard lock(mutex_);
    ended = ended_;
  }
  switch (status.code()) {
    case StatusCode::kCancelled:
      return CancelledError(what, "cancelled by the caller");
    case StatusCode::kAborted:
      if (ended.ok()) break;
      if (ended.code() == StatusCode::kUnavailable)
        return Annotate(ended, what.substr(0, what.size() - 2));
      return AbortedError(what, "the group ended: ", Message(ended));
    case StatusCode::kDeadlineExceeded:
      return DeadlineExceededError(what, "the deadline passed: rank ", operation.peer,
                                   " did not come");
    case StatusCode::kUnavailable:
      return UnavailableError(what, "rank ", operation.peer, " has left the group or died");
    default:
      break;
  }
  return Status(status.code(), what + Numbers(line) + Message(status));
}

}  // namespace ait::inline v0::internal
