// SPDX-License-Identifier: Apache-2.0
#include "comm/pair_group.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <tuple>
#include <utility>

#include "comm/operation_check.h"
#include "comm/operation_compare.h"
#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

// An operation that takes longer tells the others where it is.
constexpr milliseconds kStuck{250};
// How long the others' word is waited for, once something is known to be wrong.
constexpr milliseconds kHearing{300};
// How long the control plane may take to tell of a death that a closed connection announced.
constexpr milliseconds kDeathNotice{1000};
// How long after a deadline the operation ends at the latest, though nobody found out who is missing.
constexpr milliseconds kGrace{1000};
constexpr milliseconds kPause{10};

}  // namespace

PairGroup::PairGroup(PairHub& hub, Options options, std::unique_ptr<PairLink> link)
    : hub_(hub),
      options_(std::move(options)),
      size_(static_cast<int>(options_.members.size())),
      link_(std::move(link)),
      collectives_(options_.collectives
                       ? options_.collectives(options_, *link_)
                       : std::make_unique<PairCollectives>(*link_, options_.rank, WorldSize(size_),
                                                           options_.segment)),
      messages_(*link_, options_.rank, WorldSize(size_),
                [this](int peer, const Status& error) { return WhoBroke(peer, error); }) {}

StatusOr<std::shared_ptr<PairGroup>> PairGroup::Create(PairHub& hub, Options options,
                                                       Deadline deadline) {
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<PairLink> link, options.connect(options, deadline));
  std::shared_ptr<PairGroup> group(new PairGroup(hub, std::move(options), std::move(link)));
  AIT_ASSIGN_OR_RETURN(group->thread_, StartOwnThread(StrCat("the group ", group->options_.name),
                                                      [raw = group.get()] { raw->Run(); }));
  group->watch_ =
      hub.store().Watch(StrCat("end/", group->options_.name),
                        [weak = std::weak_ptr<PairGroup>(group)](const std::string& published) {
                          if (const auto alive = weak.lock()) alive->EndHeard(published);
                        });
  hub.Add(group);
  for (const Rank dead : hub.store().departed()) group->RankDied(dead);
  return group;
}

void PairGroup::Close() {
  hub_.store().Unwatch(watch_);
  End(AbortedError("rank ", options_.rank, " has left the group"), Telling::kPeersKnow);
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    told_ = true;
  }
  changed_.notify_all();
  thread_.join();
  messages_.Stop();
  hub_.Publish(LeftKey(options_.name, options_.rank.value()), "");
}

std::string LeftKey(std::string_view group, int rank) { return StrCat("left/", group, "/", rank); }

std::string PairGroup::Key(std::string_view what, int rank) const {
  return StrCat(what, "/", options_.name, "/", rank);
}

Work PairGroup::Start(Operation operation) {
  if (IsMessage(operation.kind)) {
    Work work = messages_.Start(std::move(operation), weak_from_this());
    hub_.Wake();
    return work;
  }
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
  hub_.Wake();
  return Work(job->state);
}

void PairGroup::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const JobPtr job = queue_.front();
    queue_.pop_front();
    current_ = job;
    job->started = SystemClock().now();
    const bool ended = !ended_.ok();
    lock.unlock();
    Status status;
    if (!ended) {
      job->state->MarkStarted();
      status = collectives_->Run(job->operation);
    }
    status = ended || !status.ok() ? Outcome(*job, status) : status;
    lock.lock();
    if (status.ok()) finished_ = job->operation.sequence;
    current_ = nullptr;
    lock.unlock();
    job->state->Finish(std::move(status));
    lock.lock();
  }
}

Status PairGroup::Outcome(Job& job, const Status& status) {
  if (status.code() == StatusCode::kUnavailable) {
    // Published, so that who hears of this rank's leaving next does not take it for the reason.
    End(WhoBroke(collectives_->failed_peer(), status), Telling::kPublish);
  } else if (!status.ok() && status.code() != StatusCode::kCancelled) {
    End(status, Telling::kPublish);
  }
  std::lock_guard lock(mutex_);
  return FailureOf(job);
}

Status PairGroup::FailureOf(Job& job) {
  const std::string what = StrCat("rank ", options_.rank, ": ", job.operation.Describe(), ": ");
  if (job.cancelled) return CancelledError(what, "cancelled");
  if (std::exchange(told_, true)) {
    return AbortedError(what, "the group ended: ", ait::Message(ended_));
  }
  return Status(ended_.code(), what + ait::Message(ended_));
}

void PairGroup::End(const Status& reason, Telling telling) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return;
    ended_ = reason;
    // Nobody is there to be told of a failure of others' operations; a death is told by the next.
    told_ = current_ == nullptr && reason.code() != StatusCode::kUnavailable;
    // Before anybody here hears of it, and may leave: who finds that out looks for the reason.
    if (telling == Telling::kPublish) {
      hub_.Publish(StrCat("end/", options_.name),
                   StrCat(static_cast<int>(reason.code()), " ", ait::Message(reason)));
    }
  }
  Log(options_.log, Severity::kInfo, options_.engine,
      StrCat("rank ", options_.rank, " of group ", options_.name,
             ": ended: ", ait::Message(reason)));
  changed_.notify_all();
  messages_.Fail(reason.code() == StatusCode::kUnavailable
                     ? reason
                     : AbortedError("the group ended: ", ait::Message(reason)));
  link_->Interrupt();
}

void PairGroup::EndHeard(const std::string& published) {
  std::istringstream text(published);
  int code = 0;
  text >> code;
  text.ignore(1);
  std::string reason;
  std::getline(text, reason, '\0');
  End(Status(static_cast<StatusCode>(code), reason), Telling::kPeersKnow);
}

void PairGroup::Abort(const Status& reason) {
  End(AbortedError("the group was aborted: ",
                   reason.ok() ? std::string("no reason was given") : ait::Message(reason)),
      Telling::kPublish);
}

void PairGroup::Cancel(const JobPtr& job) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return;  // it ends anyway
    job->cancelled = true;
  }
  End(AbortedError("rank ", options_.rank, " cancelled ", job->operation.Describe()),
      Telling::kPublish);
}

void PairGroup::RankDied(Rank world_rank) {
  const auto found = std::find(options_.members.begin(), options_.members.end(), world_rank);
  if (found == options_.members.end()) return;
  const auto rank = found - options_.members.begin();
  const bool renamed = rank != world_rank.value();
  End(UnavailableError("rank ", rank, renamed ? StrCat(" (", world_rank, " of the world)") : "",
                       " died"),
      Telling::kPeersKnow);
}

Status PairGroup::WhoBroke(int peer, const Status& error) {
  std::vector<int> suspects;  // all, if the engine does not know
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == peer || (peer < 0 && rank != options_.rank.value())) suspects.push_back(rank);
  }
  const Deadline deadline = Deadline::After(kDeathNotice);
  while (!deadline.expired()) {
    {
      std::lock_guard lock(mutex_);
      if (!ended_.ok()) return ended_;
    }
    bool waited = false;
    for (const int suspect : suspects) {
      const Status left =
          hub_.store().Get(LeftKey(options_.name, suspect), Deadline::After(kPause)).status();
      waited |= left.code() == StatusCode::kDeadlineExceeded;
      if (!left.ok()) continue;
      // It may have left because the group had ended, which it published before.
      const std::string key = StrCat("end/", options_.name);
      const StatusOr<bool> end = hub_.store().Contains(key);
      if (!end.ok() || !*end) return UnavailableError("rank ", suspect, " has left the group");
      const StatusOr<std::string> reason = hub_.store().Get(key, deadline);
      if (reason.ok()) EndHeard(*reason);
    }
    if (!waited) std::this_thread::sleep_for(kPause);
  }
  if (peer < 0) return error;
  return UnavailableError("the connection to rank ", peer, " broke: ", ait::Message(error));
}

bool PairGroup::Check(Time now) {
  messages_.Check(now);
  JobPtr job;
  bool ask = false, late = false;
  {
    std::lock_guard lock(mutex_);
    job = current_;
    if (job == nullptr) return !queue_.empty() || messages_.busy();
    if (!ended_.ok()) return true;
    Time due = job->operation.deadline.time();
    for (const JobPtr& queued : queue_) due = std::min(due, queued->operation.deadline.time());
    const Asked asked = now >= due                     ? Asked::kExpired
                        : now - job->started >= kStuck ? Asked::kStuck
                                                       : Asked::kNo;
    ask = asked > job->asked;
    job->asked = std::max(asked, job->asked);
    late = asked == Asked::kExpired && now - due >= kGrace;
  }
  if (ask) hub_.AskDiagnosis(weak_from_this());
  if (late) {
    // If rank 0 died, the group has ended by itself; so it hangs.
    End(DeadlineExceededError("rank 0 of the world, which serves the store, does not answer in ",
                              "time to tell who is missing: ", job->operation.Describe()),
        Telling::kPublish);
  }
  return true;
}

void PairGroup::Diagnose() {
  JobPtr job;
  bool expired = false;
  {
    std::lock_guard lock(mutex_);
    if (current_ == nullptr || !ended_.ok() || current_->asked == Asked::kNo) return;
    job = current_;
    expired = job->asked == Asked::kExpired;
  }
  DiagnoseJob(job, expired);
}

void PairGroup::DiagnoseJob(const JobPtr& job, bool expired) {
  const Operation& operation = job->operation;
  if (!std::exchange(job->posted, true)) {
    std::uint64_t finished = 0;
    {
      std::lock_guard lock(mutex_);
      finished = finished_;
    }
    const Status posted = hub_.store().Set(
        Key("at", options_.rank.value()), StrCat(operation.sequence, " ", finished, " ",
                                                 operation.Signature(), " ", operation.Describe()));
    if (!posted.ok()) return;
  }
  std::map<int, Record> records = ReadRecords();
  const auto own = records.find(options_.rank.value());
  if (own == records.end()) return;  // the store does not answer; `Check` ends the operation
  const auto disagrees = [&] {
    return std::any_of(records.begin(), records.end(),
                       [&](const auto& entry) { return Disagree(entry.second, own->second); });
  };
  if (!expired && !disagrees()) return;
  // The others get stuck too, or come to their deadline.
  const Deadline hearing = Deadline::After(expired ? kHearing : kStuck + kHearing);
  const auto all_are_here = [&] {
    return static_cast<int>(records.size()) == size_ &&
           std::all_of(records.begin(), records.end(), [&](const auto& entry) {
             return entry.second.sequence == operation.sequence;
           });
  };
  while (!hearing.expired() && !all_are_here()) {
    std::this_thread::sleep_for(kPause);
    for (auto& [rank, record] : ReadRecords()) records.insert_or_assign(rank, std::move(record));
  }
  const bool mismatch = disagrees();
  {
    std::lock_guard lock(mutex_);
    if (current_ != job && !mismatch) return;  // it was done at the last moment
  }
  End(mismatch ? Mismatch(records) : Missing(*job, records), Telling::kPublish);
}

std::map<int, PairGroup::Record> PairGroup::ReadRecords() {
  std::map<int, Record> records;
  for (int rank = 0; rank < size_; ++rank) {
    const std::string key = Key("at", rank);
    const StatusOr<bool> is_there = hub_.store().Contains(key);
    if (!is_there.ok() || !*is_there) continue;
    const StatusOr<std::string> value = hub_.store().Get(key, Deadline::After(kDeathNotice));
    if (!value.ok()) continue;
    std::istringstream text(*value);
    Record record;
    text >> record.sequence >> record.finished >> record.signature;
    text.ignore(1);
    std::getline(text, record.description, '\0');
    records.emplace(rank, std::move(record));
  }
  return records;
}

bool PairGroup::Disagree(const Record& a, const Record& b) {
  if (a.sequence == b.sequence) return a.signature != b.signature;
  const auto& [ahead, behind] = a.sequence > b.sequence ? std::tie(a, b) : std::tie(b, a);
  return ahead.finished < behind.sequence;  // it passed over what the other is doing
}

Status PairGroup::Mismatch(const std::map<int, Record>& records) const {
  const Record& own = records.at(options_.rank.value());
  std::map<std::uint64_t, std::vector<int>> same;  // ranks by signature
  std::string text = "the ranks ask for different operations";
  for (const auto& [rank, record] : records) {
    if (record.signature != own.signature && !Disagree(record, own)) continue;  // only behind
    same[record.signature].push_back(rank);
  }
  for (const auto& [signature, ranks] : same) {
    text += StrCat("; ", RankList(ranks), ": ", records.at(ranks.front()).description);
  }
  return InvalidArgumentError(text, "; issue the same collectives in the same order on every rank");
}

Status PairGroup::Missing(const Job& job, const std::map<int, Record>& records) const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    const auto record = records.find(rank);
    if (record == records.end() || record->second.sequence != job.operation.sequence) {
      missing.push_back(rank);
    }
  }
  if (missing.empty()) {
    return DeadlineExceededError(
        "all ranks came, but the data did not arrive in time; allow more time, or look for a slow "
        "network or a rank that hangs: ",
        job.operation.Describe());
  }
  return DeadlineExceededError(RankList(missing),
                               " did not come in time: ", job.operation.Describe());
}

}  // namespace ait::inline v0::internal
