// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_group.h"

#include <algorithm>
#include <utility>

#include "comm/operation_check.h"
#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// An operation that takes longer makes the rank look what the others say.
constexpr milliseconds kSlow{20};
// How often NCCL and the control plane are asked whether all is well.
constexpr milliseconds kWatch{1};

/// Waits a little: most operations are over in less than a thread needs to wake up.
void Pause(int round) {
  if (round < 200) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(round < 2000 ? microseconds(20) : microseconds(100));
  }
}

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<const NcclShared> shared, NcclBoard::Options board,
                     std::unique_ptr<NcclComm> comm, std::shared_ptr<Resources> resources)
    : shared_(std::move(shared)),
      size_(static_cast<int>(board.members.size())),
      board_(std::move(board)),
      comm_(std::move(comm)),
      resources_(std::move(resources)),
      messages_(*shared_, board_,
                [this](const Status& reason) { End(reason, Telling::kPublish); }) {}

StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::Create(std::shared_ptr<const NcclShared> shared,
                                                       NcclBoard::Options board,
                                                       std::unique_ptr<NcclComm> comm) {
  AIT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(shared->place.devices, shared->place.device));
  const int size = static_cast<int>(board.members.size());
  AIT_ASSIGN_OR_RETURN(NcclSignatures signatures, NcclSignatures::Create(shared->arena, size));
  std::shared_ptr<Resources> resources(new Resources{std::move(stream), std::move(signatures)});
  const std::string name = board.name;
  std::shared_ptr<NcclGroup> group(
      new NcclGroup(std::move(shared), std::move(board), std::move(comm), std::move(resources)));
  AIT_ASSIGN_OR_RETURN(group->thread_, StartOwnThread(StrCat("the group ", name),
                                                      [raw = group.get()] { raw->Run(); }));
  return group;
}

void NcclGroup::Close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  End(AbortedError("rank ", rank(), " has left the group"), Telling::kLeaving);
  changed_.notify_all();
  thread_.join();
  board_.PublishLeft(finished_);
}

Work NcclGroup::Start(Operation operation) {
  StatusOr<NcclPlaced> placed = PlaceOperation(*shared_, operation, rank(), size_);
  if (!placed.ok()) {
    return Work(Annotate(placed.status(), StrCat("rank ", rank(), ": ", operation.Describe())));
  }
  if (IsMessage(operation.kind)) {
    Status over;
    {
      std::lock_guard lock(mutex_);
      over = ended_;
    }
    if (!over.ok()) return Work(messages_.FailureOf(operation, over));
    Work work = messages_.Start(std::move(operation), *std::move(placed));
    std::lock_guard lock(mutex_);
    changed_.notify_all();
    return work;
  }
  auto job = std::make_shared<Job>();
  job->operation = std::move(operation);
  job->placed = *std::move(placed);
  return Queue(job);
}

Work NcclGroup::Queue(const JobPtr& job) {
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

void NcclGroup::Abort(const Status& reason) {
  End(AbortedError("the group was aborted: ",
                   reason.ok() ? std::string("no reason was given") : Message(reason)),
      Telling::kPublish);
}

void NcclGroup::Cancel(const JobPtr& job) {
  {
    std::lock_guard lock(mutex_);
    if (ending_) return;  // it ends anyway
    job->cancelled = true;
  }
  End(AbortedError("rank ", rank(), " cancelled ", job->operation.Describe()), Telling::kPublish);
}

StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::Split(std::span<const Rank> members,
                                                      std::uint64_t id, Deadline deadline) {
  NcclBoard::Options board = board_.options();
  board.name = StrCat(board.name, ".", id);
  const std::vector<Rank> parents = std::exchange(board.members, {});
  int color = NCCL_SPLIT_NOCOLOR;
  for (const Rank member : members) {
    if (member.value() == rank()) board.rank = static_cast<int>(board.members.size());
    board.members.push_back(parents[static_cast<std::size_t>(member.value())]);
    color = members.front().value();
  }
  std::unique_ptr<NcclComm> child;
  auto job = std::make_shared<Job>();
  job->operation.label = "split";
  job->operation.deadline = deadline;
  job->control = [&]() -> Status {
    AIT_ASSIGN_OR_RETURN(child, comm_->Split(color, board.rank, [this] { return KeepGoing(); }));
    return OkStatus();
  };
  AIT_RETURN_IF_ERROR(Queue(job).Wait());
  if (child == nullptr) return nullptr;
  return Create(shared_, std::move(board), std::move(child));
}

void NcclGroup::Run() {
  shared_->place.devices->SetCurrent(shared_->place.device).IgnoreError();
  for (int round = 0;; ++round) {
    {
      std::unique_lock lock(mutex_);
      busy_ = !resources_->in_flight.empty();
      changed_.wait(lock, [&] {
        return closing_ || busy_ || !queue_.empty() || messages_.busy() || !ended_.ok();
      });
      if (!ended_.ok()) break;
    }
    const JobPtr next = Next();
    if (next != nullptr) Issue(next);
    if (Tick() || next != nullptr) round = 0;
    Pause(round);
  }
  FailAll();
  // What comes later fails at the call; this thread has nothing left to do.
}

NcclGroup::JobPtr NcclGroup::Next() {
  const std::deque<JobPtr>& in_flight = resources_->in_flight;
  std::lock_guard lock(mutex_);
  if (queue_.empty() || !ended_.ok() || in_flight.size() == NcclSignatures::kSlots) return nullptr;
  const Job& next = *queue_.front();
  const bool runs_alone = next.control || next.placed.where == NcclPlaced::Where::kHost;
  if (runs_alone && !in_flight.empty()) return nullptr;
  issuing_ = queue_.front();
  queue_.pop_front();
  busy_ = true;
  return issuing_;
}

void NcclGroup::Issue(const JobPtr& job) {
  job->started = SystemClock().now();
  job->state->MarkStarted();
  const Status status = job->control ? job->control() : Enqueue(*job);
  if (!status.ok()) {
    End(PeerFailure(status), Telling::kPublish);  // if nothing else ended it
    return;                                       // it is still `issuing_`, and fails with the rest
  }
  issuing_ = nullptr;
  if (job->control) {
    job->state->Finish(OkStatus());
  } else {
    resources_->in_flight.push_back(job);
  }
}

Status NcclGroup::Enqueue(Job& job) {
  Resources& resources = *resources_;
  job.slot = std::exchange(next_slot_, (next_slot_ + 1) % NcclSignatures::kSlots);
  if (job.placed.produced) AIT_RETURN_IF_ERROR(resources.stream.WaitFor(*job.placed.produced));
  AIT_RETURN_IF_ERROR(EnqueueChecks(job));
  const auto keep_going = [this] { return KeepGoing(); };
  if (job.placed.where == NcclPlaced::Where::kHost) {
    const std::int64_t bytes = NcclStaged::Needs(job.operation, rank(), size_);
    std::optional<NcclArena::Piece> piece = shared_->arena->Take(bytes);
    for (int round = 0; !piece; ++round) {  // other groups use it
      AIT_RETURN_IF_ERROR(KeepGoing());
      Pause(round);
      piece = shared_->arena->Take(bytes);
    }
    job.staged.emplace(*std::move(piece), job.operation, rank(), size_);
    AIT_RETURN_IF_ERROR(job.staged->Enqueue(*comm_, resources.stream, keep_going));
  } else {
    Register(job.operation);
    AIT_RETURN_IF_ERROR(EnqueueCollective(*comm_, resources.stream.native(), job.operation,
                                          job.operation.input.data, job.operation.output.data,
                                          rank(), size_, keep_going));
  }
  AIT_ASSIGN_OR_RETURN(job.done, TakeEvent());
  return job.done->Record(resources.stream);
}

/// Sends the signature ahead. An all-to-all also makes sure of the sizes, which it would hang on.
Status NcclGroup::EnqueueChecks(Job& job) {
  job.verified = size_ == 1;
  if (job.verified) return OkStatus();
  const auto keep_going = [this] { return KeepGoing(); };
  auto& [stream, signatures, in_flight, events] = *resources_;
  AIT_RETURN_IF_ERROR(signatures.Gather(job.slot, *comm_, stream,
                                        SignatureOf(job.operation, job.placed.where), keep_going));
  AIT_ASSIGN_OR_RETURN(job.checked, TakeEvent());
  AIT_RETURN_IF_ERROR(job.checked->Record(stream));
  if (job.operation.kind != OperationKind::kAllToAll) return OkStatus();
  AIT_RETURN_IF_ERROR(Await(*job.checked));
  AIT_RETURN_IF_ERROR(Verify(job));
  AIT_RETURN_IF_ERROR(
      signatures.ExchangeCounts(job.slot, *comm_, stream, job.operation, keep_going));
  AIT_RETURN_IF_ERROR(job.checked->Record(stream));
  AIT_RETURN_IF_ERROR(Await(*job.checked));
  return VerifyCounts(job);
}

Status NcclGroup::Await(const Event& event) {
  for (int round = 0;; ++round) {
    AIT_ASSIGN_OR_RETURN(const bool done, event.Done());
    if (done) return OkStatus();
    AIT_RETURN_IF_ERROR(KeepGoing());
    Pause(round);
  }
}

/// Blocks of `memory()` are registered by the first operation that uses them.
void NcclGroup::Register(const Operation& operation) {
  const NcclLibrary& library = comm_->library();
  if (!library.registers()) return;
  for (const void* address :
       {operation.input.data, static_cast<const void*>(operation.output.data)}) {
    if (address == nullptr) continue;
    const auto block = shared_->memory->Find(address);
    if (!block || registered_.contains(block->first)) continue;
    void* handle = nullptr;
    // Without it the operation works too, only slower.
    const ncclResult_t result =
        library.ncclCommRegister(comm_->get(), block->first, block->second, &handle);
    if (const Status status = library.Check(result, comm_->get(), "ncclCommRegister");
        !status.ok()) {
      Log(shared_->log, Severity::kWarning, "nccl", StrCat("rank ", rank(), ": ", Message(status)));
    }
    registered_[block->first] = result == ncclSuccess ? handle : nullptr;
  }
}

bool NcclGroup::Tick() {
  bool moved = PollFront();
  moved = messages_.Step() || moved;
  if (SystemClock().now() >= next_watch_) Watch();
  return moved;
}

Status NcclGroup::KeepGoing() {
  Tick();
  return ended();
}

bool NcclGroup::PollFront() {
  std::deque<JobPtr>& in_flight = resources_->in_flight;
  bool moved = false;
  while (!in_flight.empty()) {
    const JobPtr job = in_flight.front();
    const auto passed = [&](const Event& event) {
      const StatusOr<bool> done = event.Done();
      if (!done.ok()) End(done.status(), Telling::kPublish);
      return done.ok() && *done;
    };
    if (!job->verified) {
      if (!ended().ok() || !passed(*job->checked)) return moved;
      if (const Status status = Verify(*job); !status.ok()) {
        End(status, Telling::kPublish);
        return true;
      }
    }
    if (!passed(*job->done)) return moved;
    moved = true;
    in_flight.pop_front();
    if (job->staged) job->staged->Finish();
    finished_ = job->operation.sequence;
    Recycle(*job);
    job->state->Finish(OkStatus());
  }
  return moved;
}

/// Whether NCCL, the peers and the clock allow to go on.
void NcclGroup::Watch() {
  const Time now = SystemClock().now();
  next_watch_ = now + kWatch;
  if (const auto death = board_.Death()) return End(*death, Telling::kPeersKnow);
  const JobPtr front = Front();
  const bool slow = front != nullptr && now - front->started >= kSlow;
  if (slow || messages_.busy()) {
    board_.Look(NcclBoard::When::kInTime);
    if (board_.end()) return End(*board_.end(), Telling::kPeersKnow);
    for (const auto& [left, finished] : board_.left()) {
      messages_.PeerLeft(left);
      if (front != nullptr && !front->control && finished < front->operation.sequence) {
        // Published, because who hears of it first may leave before the others hear.
        return End(UnavailableError("rank ", left, " has left the group"), Telling::kPublish);
      }
    }
  }
  if (front == nullptr) return;
  if (const StatusOr<bool> ready = comm_->Ready("NCCL failed meanwhile"); !ready.ok()) {
    return End(PeerFailure(ready.status()), Telling::kPublish);
  }
  CheckDeadlines(now);
}

NcclGroup::JobPtr NcclGroup::Front() const {
  return resources_->in_flight.empty() ? issuing_ : resources_->in_flight.front();
}

StatusOr<Event> NcclGroup::TakeEvent() {
  std::vector<Event>& events = resources_->events;
  if (events.empty()) return Event::Create(shared_->place.devices, shared_->place.device);
  Event event = std::move(events.back());
  events.pop_back();
  return event;
}

void NcclGroup::Recycle(Job& job) {
  for (std::optional<Event>* event : {&job.checked, &job.done, &job.placed.produced}) {
    if (*event) resources_->events.push_back(std::move(**event));
    event->reset();
  }
  job.staged.reset();
}

}  // namespace ait::inline v0::internal
