// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/flight_recorder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "ait/base/durable_file.h"
#include "ait/comm/hang_report.h"
#include "comm/operation_check.h"
#include "comm/own_thread.h"

namespace ait::inline v0 {
namespace {

constexpr std::size_t kClosedKept = 64;
constexpr std::size_t kTold = 8;

template <std::size_t N>
void Cut(std::string_view text, char (&field)[N]) {
  const std::size_t length = std::min(text.size(), N - 1);
  if (length > 0) std::memcpy(field, text.data(), length);  // a view of nothing has no address
  field[length] = '\0';
}

std::int64_t TotalCount(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kBarrier:
      return 0;
    case OperationKind::kSend:
      return operation.input.count;
    case OperationKind::kReceive:
    case OperationKind::kBroadcast:
    case OperationKind::kAllReduce:
      return operation.output.count;
    default: {
      // A refused operation may hold anything: no overflow here.
      std::uint64_t total = 0;
      for (const std::int64_t count : operation.counts) total += static_cast<std::uint64_t>(count);
      return static_cast<std::int64_t>(total);
    }
  }
}

/// Of parts that differ: which rank has which. Those of an all-to-all are each rank's own.
std::uint64_t PartsHash(const Operation& operation) {
  const std::vector<std::int64_t>& counts = operation.counts;
  if (counts.empty() || operation.kind == OperationKind::kAllToAll) return 0;
  std::uint64_t hash = 0xcbf29ce484222325u;
  bool differ = false;
  for (const std::int64_t count : counts) {
    differ = differ || count != counts[0];
    hash = (hash ^ static_cast<std::uint64_t>(count)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return differ ? hash | 1 : 0;
}

/// Tells that something else went wrong, or that somebody wanted it so.
bool IsEcho(const Status& status) {
  return status.ok() || status.code() == StatusCode::kAborted ||
         status.code() == StatusCode::kCancelled;
}

bool IsOver(FlightState state) {
  return state == FlightState::kDone || state == FlightState::kFailed;
}

}  // namespace

std::string_view Name(FlightState state) {
  switch (state) {
    case FlightState::kWaiting:
      return "waiting";
    case FlightState::kDone:
      return "done";
    case FlightState::kFailed:
      return "failed";
  }
  return "unknown";
}

FlightRecorder::FlightRecorder(FlightRecorderOptions options)
    : options_(std::move(options)),
      mask_(std::bit_ceil(static_cast<std::uint64_t>(std::clamp(options_.capacity, 16, 65536))) -
            1),
      records_(std::make_unique<FlightRecord[]>(mask_ + 1)) {}

FlightRecorder::~FlightRecorder() {
  if (dumper_.joinable()) dumper_.join();
  if (!failure_.ok()) DumpAndTell();
}

void FlightRecorder::Note(std::int64_t step, std::string_view phase) {
  const Time now = SystemClock().now();
  const Lock lock(*this);
  noted_.step = step;
  noted_.time = now;
  Cut(phase, noted_.phase);
  notes_[notes_taken_++ % std::size(notes_)] = noted_;
}

std::uint64_t FlightRecorder::Begin(GroupInfo& group, const Operation& operation, Time now) {
  const std::int64_t count = TotalCount(operation);
  const std::uint64_t parts_hash = PartsHash(operation);
  const Lock lock(*this);
  const std::uint64_t number = ++issued_;
  ++outstanding_;
  if (operation.sequence != 0) group.issued = operation.sequence;
  FlightRecord& record = Slot(number);
  record.number = number;
  record.sequence = operation.sequence;
  record.count = count;
  record.parts_hash = parts_hash;
  record.issued = now;
  record.started = record.finished = Time{};
  record.deadline = operation.deadline.time();
  record.step = noted_.step;
  record.group = group.id;
  record.tag = operation.tag;
  record.peer = operation.peer.value();
  record.kind = operation.kind;
  record.reduce = operation.reduce;
  record.dtype = operation.dtype;
  record.state = FlightState::kWaiting;
  record.code = StatusCode::kOk;
  std::memcpy(record.phase, noted_.phase, sizeof(record.phase));
  Cut(operation.label, record.label);
  return number;
}

Status FlightRecorder::End(GroupInfo& group, std::uint64_t number, Status status, Time started,
                           Time finished) {
  bool is_message = false;
  {
    const Lock lock(*this);
    FlightRecord& record = Slot(number);
    --outstanding_;
    if (record.number == number) {  // else newer ones have taken its place
      is_message = record.sequence == 0;
      record.state = status.ok() ? FlightState::kDone : FlightState::kFailed;
      record.code = status.code();
      record.started = started;
      record.finished = finished;
      if (status.ok()) group.finished = std::max(group.finished, record.sequence);
    }
  }
  if (status.ok()) return status;
  status = Failed(number, status);
  // The group goes on after a call that was refused.
  if (finished == Time{} && status.code() == StatusCode::kInvalidArgument) return status;
  // A message that does not come, or is taken back, may be part of a program's plan.
  if (!is_message || status.code() == StatusCode::kUnavailable) FailGroup(group, status);
  return status;
}

Status FlightRecorder::Failed(std::uint64_t number, const Status& status) {
  std::lock_guard lock(mutex_);
  const auto found = explanations_.find(number);
  if (found == explanations_.end()) return status;
  const std::string text = std::move(found->second);
  explanations_.erase(found);
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  return DeadlineExceededError(Message(status), "; hang report: ", text);
}

void FlightRecorder::Explain(std::uint64_t number, std::string text) {
  std::lock_guard lock(mutex_);
  if (told_.empty() || told_.back() != text) told_.push_back(text);
  if (told_.size() > kTold) told_.pop_front();
  {
    const Lock records(*this);
    const FlightRecord& record = Slot(number);
    if (record.number != number || IsOver(record.state)) return;
  }
  explanations_[number] = std::move(text);
}

void FlightRecorder::Fail(const Status& reason) {
  std::lock_guard lock(mutex_);
  FailLocked(reason);
}

void FlightRecorder::FailGroup(GroupInfo& group, const Status& reason) {
  std::lock_guard lock(mutex_);
  if (!std::exchange(group.failed, true)) FailLocked(reason);
}

void FlightRecorder::FailLocked(const Status& reason) {
  if (failure_.ok() || !IsEcho(reason)) {
    failure_ = reason.ok() ? AbortedError("no reason was given") : reason;
  }
  if (options_.directory.empty()) return;
  dump_again_ = true;
  if (dumping_) return;
  if (dumper_.joinable()) dumper_.join();  // it has done its work
  // Not here: the caller may hold up a transport. Without a thread the destructor writes it.
  auto thread = internal::StartOwnThread("the flight recorder", [this] { RunDumper(); });
  if (!thread.ok()) return;
  dumper_ = *std::move(thread);
  dumping_ = true;
}

void FlightRecorder::RunDumper() {
  std::unique_lock lock(mutex_);
  while (std::exchange(dump_again_, false)) {
    lock.unlock();
    DumpAndTell();
    lock.lock();
  }
  dumping_ = false;
}

void FlightRecorder::DumpAndTell() const {
  if (options_.directory.empty()) return;
  const Status written = Dump();
  if (written.ok()) {
    Log(options_.log, Severity::kInfo, "comm",
        StrCat("rank ", options_.rank, ": its last operations are in ", options_.directory,
               "/rank-", options_.rank, ".json; see: ait hang ", options_.directory));
  } else {
    Log(options_.log, Severity::kWarning, "comm", Message(written));
  }
}

Status FlightRecorder::Dump() const {
  return options_.directory.empty() ? OkStatus() : DumpToDirectory(options_.directory);
}

Status FlightRecorder::DumpToDirectory(const std::string& directory) const {
  std::lock_guard lock(file_mutex_);  // one writer of the file
  const std::string path = StrCat(directory, "/rank-", options_.rank, ".json");
  const std::string what = StrCat("the record of rank ", options_.rank, " cannot be written");
  AIT_RETURN_IF_ERROR(Annotate(MakeDirectoryDurably(directory), what));
  return Annotate(WriteFileDurably(path, ToJson()), what);
}

std::unique_ptr<FlightGroup> FlightRecorder::AddGroup(std::string name, std::vector<Rank> members) {
  auto info = std::make_shared<GroupInfo>();
  info->name = std::move(name);
  info->members = std::move(members);
  std::lock_guard lock(mutex_);
  info->id = next_group_++;
  groups_.emplace(info->id, info);
  return std::unique_ptr<FlightGroup>(new FlightGroup(shared_from_this(), std::move(info)));
}

FlightGroup::~FlightGroup() { recorder_->Close(*info_); }

void FlightRecorder::Close(GroupInfo& group) {
  std::lock_guard lock(mutex_);
  {
    const Lock records(*this);
    group.closed = true;
  }
  closed_.push_back(group.id);
  if (closed_.size() <= kClosedKept) return;
  groups_.erase(closed_.front());
  closed_.pop_front();
}

std::string FlightRecorder::GroupName(std::uint32_t id) const {
  const auto found = groups_.find(id);
  return found == groups_.end() ? StrCat("closed group ", id) : found->second->name;
}

std::vector<FlightRecord> FlightRecorder::Records() const {
  std::vector<FlightRecord> records(mask_ + 1);
  std::uint64_t first = 0, last = 0;
  {
    const Lock lock(*this);
    last = issued_;
    first = last > mask_ ? last - mask_ : 1;
    for (std::uint64_t number = first; number <= last; ++number)
      records[number - first] = Slot(number);
  }
  records.resize(last + 1 - first);
  return records;
}

std::vector<FlightRecord> FlightRecorder::Outstanding() const {
  std::vector<FlightRecord> waiting;
  {
    const Lock lock(*this);
    const std::uint64_t first = issued_ > mask_ ? issued_ - mask_ : 1;
    for (std::uint64_t number = issued_; waiting.size() < outstanding_ && number >= first; --number)
      if (!IsOver(Slot(number).state)) waiting.push_back(Slot(number));
  }
  std::reverse(waiting.begin(), waiting.end());
  return waiting;
}

}  // namespace ait::inline v0
