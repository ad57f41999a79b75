// SPDX-License-Identifier: Apache-2.0
// How a group over NCCL ends: what makes it end, who is told what, and what becomes of its work.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/nccl_group.h"
#include "comm/operation_compare.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

// An operation that takes longer tells the others where it is.
constexpr milliseconds kStuck{250};
// How long the others' word is waited for, once something is known to be wrong.
constexpr milliseconds kHearing{300};
// How long the control plane may take to tell of a death that NCCL has noticed.
constexpr milliseconds kDeathNotice{1000};
constexpr milliseconds kPause{10};

}  // namespace

void NcclGroup::End(const Status& reason, Telling telling) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ending_, true)) return;
    leaving_ = telling == Telling::kLeaving;
  }
  // Before anybody here hears of it, and may leave: who finds that out looks for the reason.
  if (telling == Telling::kPublish) board_.PublishEnd(reason);
  Log(shared_->log, Severity::kInfo, "nccl",
      StrCat("rank ", rank(), " of group ", board_.options().name, ": ended: ", Message(reason)));
  std::lock_guard lock(mutex_);
  ended_ = reason;
  // Nobody is there to be told of a failure of others' operations; a death is told by the next.
  told_ = !busy_ && queue_.empty() && reason.code() != StatusCode::kUnavailable;
  changed_.notify_all();
}

Status NcclGroup::ended() {
  std::lock_guard lock(mutex_);
  return ended_;
}

Status NcclGroup::FailureOf(Job& job) {
  const std::string what = StrCat("rank ", rank(), ": ", job.operation.Describe(), ": ");
  if (job.cancelled) return CancelledError(what, "cancelled");
  if (std::exchange(told_, true)) {
    return AbortedError(what, "the group ended: ", Message(ended_));
  }
  return Status(ended_.code(), what + Message(ended_));
}

/// Stops NCCL and ends all that waits for it.
void NcclGroup::FailAll() {
  PollFront();  // what was done ended well
  std::vector<JobPtr> jobs;
  bool leaving = false;
  {
    std::lock_guard lock(mutex_);
    std::deque<JobPtr>& in_flight = resources_->in_flight;
    jobs.assign(in_flight.begin(), in_flight.end());
    if (issuing_ != nullptr) jobs.push_back(issuing_);
    jobs.insert(jobs.end(), queue_.begin(), queue_.end());
    queue_.clear();
    leaving = leaving_ && jobs.empty();
  }
  // What is left in the stream, behind an operation that stopped, uses the staging memory.
  const auto release = [resources = resources_] { resources->stream.Wait().IgnoreError(); };
  if (leaving) {
    for (const auto& [block, handle] : registered_) {
      if (handle != nullptr) comm_->library().ncclCommDeregister(comm_->get(), handle);
    }
    comm_->Close(release);
  } else {
    comm_->Abort(release);
  }
  messages_.Stop();
  const Deadline deadline = Deadline::After(shared_->abort_timeout);
  const bool let_go = comm_->AwaitEnd(deadline) && messages_.AwaitStopped(deadline);
  std::string note;
  if (!let_go) {
    note = StrCat("; NCCL has not let go of the buffers after ", shared_->abort_timeout.count(),
                  " ms: do not touch them, and end this process");
    Log(shared_->log, Severity::kError, "nccl",
        StrCat("rank ", rank(), " of group ", board_.options().name, note));
  }
  for (const JobPtr& job : jobs) {
    Status status;
    {
      std::lock_guard lock(mutex_);
      status = FailureOf(*job);
    }
    job->state->Finish(Status(status.code(), Message(status) + note));
  }
  messages_.Fail(ended(), note);
  std::lock_guard lock(mutex_);
  busy_ = false;
  issuing_ = nullptr;
}

void NcclGroup::Post(Job& job) {
  if (std::exchange(job.posted, true) || job.control) return;
  board_.PublishRecord(job.operation, SignatureOf(job.operation, job.placed.where),
                       DescribePlaced(job.operation, job.placed.where));
}

void NcclGroup::CheckDeadlines(Time now) {
  const JobPtr front = Front();
  Time due = front->operation.deadline.time();
  for (const JobPtr& job : resources_->in_flight) {
    due = std::min(due, job->operation.deadline.time());
  }
  if (issuing_ != nullptr) due = std::min(due, issuing_->operation.deadline.time());
  {
    std::lock_guard lock(mutex_);
    for (const JobPtr& job : queue_) due = std::min(due, job->operation.deadline.time());
  }
  if (now - front->started >= kStuck) Post(*front);
  if (now < due) return;
  if (const Status status = Missing(front); !status.ok()) End(status, Telling::kPublish);
}

/// Who has not come to `job`, whose deadline has passed; ok if it was done at the last moment.
Status NcclGroup::Missing(const JobPtr& job) {
  if (job->control) {
    return DeadlineExceededError(
        "NCCL did not split the group in time; all ranks of a group take part in a split");
  }
  Post(*job);
  const Deadline hearing = Deadline::After(kHearing);
  std::map<int, NcclBoard::Record> records;
  while (true) {
    PollFront();
    if (Front() != job) return OkStatus();
    records = board_.Records(job->operation.sequence);
    if (static_cast<int>(records.size()) == size_ || hearing.expired()) break;
    std::this_thread::sleep_for(kPause);
  }
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (!records.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) {
    return DeadlineExceededError(
        "all ranks came, but the data did not arrive in time; allow more time, or look for a slow "
        "network or a device that hangs: ",
        job->operation.Describe());
  }
  return DeadlineExceededError(RankList(missing),
                               " did not come in time: ", job->operation.Describe());
}

Status NcclGroup::Verify(Job& job) {
  const std::span<const std::uint64_t> signatures = resources_->signatures.Gathered(job.slot);
  job.verified = std::all_of(signatures.begin(), signatures.end(),
                             [&](std::uint64_t signature) { return signature == signatures[0]; });
  return job.verified ? OkStatus() : Mismatch(job, signatures);
}

/// Every rank comes here, and says what it is at.
Status NcclGroup::Mismatch(const Job& job, std::span<const std::uint64_t> signatures) {
  const std::vector<std::uint64_t> seen(signatures.begin(), signatures.end());
  board_.PublishRecord(job.operation, SignatureOf(job.operation, job.placed.where),
                       DescribePlaced(job.operation, job.placed.where));
  std::vector<std::string> descriptions;
  for (const std::uint64_t signature : seen) {
    descriptions.push_back(
        StrCat("an operation that it did not describe (signature ", signature, ")"));
  }
  const Deadline hearing = Deadline::After(kHearing);
  for (bool complete = false; !complete; std::this_thread::sleep_for(kPause)) {
    complete = true;
    const std::map<int, NcclBoard::Record> records = board_.Records(0);
    for (std::size_t rank = 0; rank < seen.size(); ++rank) {
      const auto record = records.find(static_cast<int>(rank));
      if (record != records.end() && record->second.signature == seen[rank]) {
        descriptions[rank] = record->second.description;
      } else {
        complete = hearing.expired();
      }
    }
  }
  return CompareSignatures(seen, descriptions);
}

Status NcclGroup::VerifyCounts(Job& job) {
  const std::span<const std::uint64_t> sent = resources_->signatures.ExchangedCounts(job.slot);
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    const std::int64_t expected = job.operation.receive_counts[peer];
    if (static_cast<std::int64_t>(sent[peer]) == expected) continue;
    return InvalidArgumentError("rank ", peer, " sends ", sent[peer], " elements to rank ", rank(),
                                ", which expects ", expected);
  }
  return OkStatus();
}

/// Why NCCL lost a peer, if the control plane can tell.
Status NcclGroup::PeerFailure(const Status& error) {
  if (error.code() != StatusCode::kUnavailable) return error;
  const Deadline deadline = Deadline::After(kDeathNotice);
  while (ended().ok() && !deadline.expired()) {
    if (const auto death = board_.Death()) return *death;
    board_.Look(NcclBoard::When::kNow);
    if (board_.end()) return *board_.end();
    if (!board_.left().empty()) {
      return UnavailableError("rank ", board_.left().begin()->first, " has left the group");
    }
    std::this_thread::sleep_for(kPause);
  }
  return error;
}

}  // namespace ait::inline v0::internal
