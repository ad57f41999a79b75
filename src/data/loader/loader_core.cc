// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <exception>
#include <system_error>
#include <utility>

#include "ait/memory/fork_safe_mutex.h"
#include "data/loader/loader_core_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// Deliveries without a wait after which one batch fewer is kept ahead.
constexpr int kCalm = 64;

}  // namespace

LoaderCore::LoaderCore(std::shared_ptr<const BatchPlan> plan,
                       std::vector<std::shared_ptr<const SampleSource>> sources,
                       LoaderOptions options, int threads, std::shared_ptr<DeviceRuntime> gpus)
    : plan_(std::move(plan)),
      sources_(std::move(sources)),
      options_(std::move(options)),
      thread_count_(threads),
      budget_bytes_(options_.budget.value()),
      collate_(options_.collate ? options_.collate : Stack()),
      excluded_(options_.bad_samples.exclude.begin(), options_.bad_samples.exclude.end()),
      forks_(ForkSafeMutex::forks()),
      gpus_(std::move(gpus)),
      bad_budget_(options_.bad_samples),
      taken_at_(SystemClock().now()) {
  state_.plan_digest = plan_->digest();
  planned_to_ = state_;
  for (const auto& source : sources_) digests_.push_back(source->digest());
  depth_ = std::min(options_.max_ahead, std::max(thread_count_, 1) + 1);
  for (int i = 0; i < std::max(threads, 1); ++i) {
    activities_.push_back(std::make_unique<Activity>());
  }
}

LoaderCore::~LoaderCore() {
  {
    const Lock lock(mutex_);
    is_stopping_ = true;
    halted_.store(true, std::memory_order_relaxed);
  }
  work_cv_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  copies_.reset();  // before the memory that they read
}

Status LoaderCore::Open() {
  if (!options_.bad_samples.log_path.empty()) {
    AIT_ASSIGN_OR_RETURN(BadSampleLog log, BadSampleLog::Open(options_.bad_samples.log_path));
    bad_log_.emplace(std::move(log));
  }
  if (options_.device_copy) {
    AIT_ASSIGN_OR_RETURN(copies_, DeviceCopies::Create(*options_.device_copy));
    device_ = options_.device_copy->device;
  } else if (gpus_ != nullptr && gpus_->count() > 0) {
    AIT_ASSIGN_OR_RETURN(device_, gpus_->current());
  }
  return TryPlan(state_);
}

Status LoaderCore::TryPlan(const DatasetState& state) const {
  PlannedBatch batch;
  try {
    return plan_->NextBatch(state, options_.shard, batch);
  } catch (const std::exception& error) {
    return InternalError("the plan threw: ", error.what());
  } catch (...) {
    return InternalError("the plan threw what is no std::exception");
  }
}

bool LoaderCore::IsForked() const { return forks_ != ForkSafeMutex::forks(); }

Status LoaderCore::StartThreads() {
  if (!threads_.empty() || thread_count_ == 0) return OkStatus();
  try {
    threads_.reserve(static_cast<std::size_t>(thread_count_));
    for (int i = 0; i < thread_count_; ++i) threads_.emplace_back([this, i] { Work(i); });
  } catch (const std::system_error& error) {
    // With those that there are it goes on as well, only slower.
    if (threads_.empty()) {
      return ResourceExhaustedError("cannot start a thread of the loader: ", error.what(),
                                    "; set threads to 0 to do without");
    }
    Log(options_.log, Severity::kWarning, "data",
        StrCat("the loader has ", threads_.size(), " threads instead of ", thread_count_, ": ",
               error.what()));
  }
  return OkStatus();
}

const DataBatch* LoaderCore::Next() {
  if (IsForked()) {
    status_ = FailedPreconditionError(
        "the loader belongs to the parent of this process; make one after the fork");
    return nullptr;
  }
  std::vector<HostBuffer> trash;
  const Time begin = SystemClock().now();
  Lock lock(mutex_);
  const DataBatch* const batch = NextLocked(lock);
  // All of it: the device, the list of bad samples and the mutex keep a step waiting as well.
  statistics_.consumer_wait += SystemClock().now() - begin;
  trash.swap(trash_);
  lock.unlock();
  return batch;
}

const DataBatch* LoaderCore::NextLocked(Lock& lock) {
  TakeBack(lock);
  if (!status_.ok() || is_end_) return nullptr;
  if (threads_.empty()) {
    const Unlocked unlocked(*this, lock);
    status_ = StartThreads();
  }
  BatchWork* const work = status_.ok() ? WaitForBatch(lock) : nullptr;
  if (work == nullptr) {
    halted_.store(!status_.ok(), std::memory_order_relaxed);
    return nullptr;
  }
  // Waking costs more than a small batch does, so threads sleep until half is used up.
  if (in_flight_.size() <= static_cast<std::size_t>(depth_) / 2) WakeThreads();
  {
    const Unlocked unlocked(*this, lock);
    status_ = Commit(*work);
  }
  if (status_.ok() && copies_ != nullptr) status_ = CopyToDevice(lock);
  if (!status_.ok()) {
    halted_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  Delivered(*work);
  return &work->batch;
}

/// Takes the next batch out of those in flight; null at the end and after an error.
BatchWork* LoaderCore::WaitForBatch(Lock& lock) {
  const Time begin = SystemClock().now();
  Time warn = options_.slow_batch.count() > 0 ? begin + options_.slow_batch : Time::max();
  bool has_waited = false;
  std::size_t found = 0;
  while (true) {
    if (is_cancelled_) {
      status_ = CancelledError("the loader was cancelled");
    } else if (!thread_status_.ok()) {
      status_ = thread_status_;
    }
    if (!status_.ok()) break;
    found = FindDeliverable();
    if (found < in_flight_.size()) break;
    if (in_flight_.empty() && plan_has_ended_) {
      status_ = plan_status_;
      is_end_ = status_.ok();
      if (is_end_) AdvanceState();  // the last ones may have been delivered before
      break;
    }
    if (thread_count_ == 0) {
      TakeBackCopied(lock, 0);
      const std::optional<Task> task = PickTask(lock);
      if (task) {
        Run(lock, *task, *activities_[0]);
      } else if (!IsHalted() && (!plan_has_ended_ || !in_flight_.empty())) {
        status_ = InternalError("the loader has nothing to do and no batch");
      }
      continue;
    }
    if (!has_waited) {
      TakeBackCopied(lock, 0);
      WakeThreads();  // what was taken back made room
      has_waited = true;
      continue;
    }
    if (warn == Time::max()) {
      ready_cv_.wait(lock);
    } else if (ready_cv_.wait_until(lock, warn) == std::cv_status::timeout) {
      SayWhatIsSlow(lock, SystemClock().now() - begin);
      warn = SystemClock().now() + options_.slow_batch;
    }
  }
  if (has_waited || thread_count_ == 0) ++statistics_.waits;
  if (!status_.ok() || is_end_) return nullptr;
  AdaptDepth(has_waited);
  held_ = std::move(in_flight_[found]);
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(found));
  --ready_;
  return held_.get();
}

std::size_t LoaderCore::FindDeliverable() const {
  const std::size_t end = options_.order == DeliveryOrder::kPlanned
                              ? std::min<std::size_t>(in_flight_.size(), 1)
                              : in_flight_.size();
  for (std::size_t i = 0; i < end; ++i) {
    if (in_flight_[i]->stage == Stage::kReady) return i;
  }
  return in_flight_.size();
}

/// One batch more ahead after a wait; one fewer after many deliveries at which at least two more
/// were ready.
void LoaderCore::AdaptDepth(bool waited) {
  if (waited) {
    depth_ = std::min(depth_ + 1, options_.max_ahead);
    calm_ = 0;
    return;
  }
  least_ready_ = calm_ == 0 ? ready_ : std::min(least_ready_, ready_);
  if (++calm_ < kCalm) return;
  calm_ = 0;
  if (least_ready_ > 2) depth_ = std::max(depth_ - 1, 1);
}

/// Takes back the batch that the caller had.
void LoaderCore::TakeBack(Lock& lock) {
  if (held_ == nullptr) return;
  if (held_->device != nullptr) {
    const Status released = copies_->Release(*held_->device);
    if (status_.ok()) status_ = released;
    copying_.push_back(std::move(held_));
    return TakeBackCopied(lock, 2);
  }
  Reset(*held_);
  free_.push_back(std::move(held_));
}

/// Takes back batches that the device has read; waits until at most `most` are left.
void LoaderCore::TakeBackCopied(Lock& lock, std::size_t most) {
  while (!copying_.empty()) {
    const Event& copied = copying_.front()->device->copied;
    if (copying_.size() > most) {
      const Unlocked unlocked(*this, lock);
      const Status waited = copied.Wait();
      if (status_.ok()) status_ = waited;
    } else if (const StatusOr<bool> done = copied.Done(); done.ok() && !*done) {
      return;
    }
    copies_->PutBack(std::move(copying_.front()->device));
    Reset(*copying_.front());
    free_.push_back(std::move(copying_.front()));
    copying_.pop_front();
  }
}

/// Copies the batch that is handed out if it was not yet, and begins with the one behind it.
Status LoaderCore::CopyToDevice(Lock& lock) {
  BatchWork* next = in_flight_.empty() ? nullptr : in_flight_.front().get();
  if (next != nullptr && (next->stage != Stage::kReady || !next->status.ok() || next->is_copied)) {
    next = nullptr;
  }
  // From here on no thread gives it up.
  if (next != nullptr) next->is_copied = true;
  const Unlocked unlocked(*this, lock);
  if (held_->device == nullptr) {
    AIT_ASSIGN_OR_RETURN(held_->device, copies_->Start(held_->batch));
  }
  AIT_RETURN_IF_ERROR(copies_->HandOut(*held_->device));
  if (next == nullptr) return OkStatus();
  StatusOr<std::unique_ptr<DeviceSet>> set = copies_->Start(next->batch);
  if (set.ok()) {
    next->device = *std::move(set);
  } else {
    next->status = set.status();
  }
  return OkStatus();
}

/// Counts and lists the bad samples of a batch that is to be delivered.
Status LoaderCore::Commit(BatchWork& work) {
  std::size_t next = 0;
  std::int64_t counted = 0;
  Status status;
  for (std::size_t slot = 0; slot < work.batch.planned.size() && status.ok(); ++slot) {
    bool is_good = true;  // as it was planned: who stands in ends no row of bad ones
    for (; next < work.bad.size() && work.bad[next].slot == slot && status.ok(); ++next) {
      const BadSample& bad = work.bad[next].sample;
      const std::array<std::int64_t, 4> place = {work.batch.planned[slot].source, bad.epoch,
                                                 bad.position, bad.attempt};
      is_good = false;
      if (counted_.contains(place)) continue;
      Log(options_.log, Severity::kWarning, "data",
          StrCat("bad sample ", bad.id, " of ", bad.source, ": ", bad.reason));
      if (bad_log_) status = bad_log_->Append(bad);
      if (status.ok()) status = bad_budget_.CountBad(bad);
      ++counted;
      if (status.ok()) counted_.insert(place);
    }
    if (is_good) bad_budget_.CountGood();
    if (work.bad.empty()) break;
  }
  if (counted > 0) {
    const Lock lock(mutex_);
    statistics_.bad_samples += counted;
  }
  if (!status.ok()) return status;
  if (IsBeyondBudget(work)) {
    return InternalError("batch ", work.number, " has ", work.bad_places.size(),
                         " bad samples, of which ", counted, " counted, and was not made");
  }
  if (!work.status.ok()) {
    return Annotate(work.status,
                    StrCat("batch ", work.number, " of rank ", options_.shard.rank.value()));
  }
  return OkStatus();
}

void LoaderCore::Delivered(const BatchWork& work) {
  ++statistics_.batches;
  statistics_.samples += static_cast<std::int64_t>(work.batch.samples.size());
  statistics_.bytes += work.bytes_read;
  statistics_.stand_ins += work.stand_ins;
  statistics_.read += work.read;
  statistics_.transform += work.transform;
  statistics_.collate += work.collate;
  ahead_.emplace(work.number, work.batch.after);
  AdvanceState();
}

/// Moves the state over what has been delivered without a gap.
void LoaderCore::AdvanceState() {
  for (auto next = ahead_.find(delivered_); next != ahead_.end(); next = ahead_.find(delivered_)) {
    state_ = next->second;
    ahead_.erase(next);
    ++delivered_;
  }
}

// A thread of the parent may have held the mutex at the fork: a child must not wait for it.

std::vector<DatasetState> LoaderCore::delivered_ahead() const {
  if (IsForked()) return {};
  const Lock lock(mutex_);
  std::vector<DatasetState> ahead = skip_;
  for (const auto& [number, state] : ahead_) ahead.push_back(state);
  return ahead;
}

Status LoaderCore::Restore(const DatasetState& state, std::span<const DatasetState> ahead) {
  if (IsForked()) return FailedPreconditionError("the loader belongs to the parent");
  AIT_RETURN_IF_ERROR(TryPlan(state));
  Lock lock(mutex_);
  halted_.store(true, std::memory_order_relaxed);
  ready_cv_.wait(lock, [&] { return active_ == 0; });
  TakeBack(lock);
  TakeBackCopied(lock, 0);
  if (copies_ != nullptr) {
    const Status waited = copies_->Wait();
    if (!waited.ok()) {
      status_ = waited;  // or the next call of Next would wait for threads that have halted
      return waited;
    }
  }
  for (std::unique_ptr<BatchWork>& work : in_flight_) {
    if (work->device != nullptr) copies_->PutBack(std::move(work->device));
    Reset(*work);
    free_.push_back(std::move(work));
  }
  in_flight_.clear();
  ready_ = 0;
  planned_to_ = state_ = state;
  skip_.assign(ahead.begin(), ahead.end());
  ahead_.clear();
  next_number_ = delivered_ = 0;
  plan_has_ended_ = is_end_ = is_cancelled_ = false;
  plan_status_ = status_ = OkStatus();
  halted_.store(false, std::memory_order_relaxed);
  WakeThreads();
  return OkStatus();
}

void LoaderCore::Cancel() {
  if (IsForked()) return;
  const Lock lock(mutex_);
  is_cancelled_ = true;
  halted_.store(true, std::memory_order_relaxed);
  ready_cv_.notify_all();
}

LoaderStatistics LoaderCore::statistics() const {
  if (IsForked()) return {};
  LoaderStatistics result;
  {
    const Lock lock(mutex_);
    result = statistics_;
    result.held_bytes = actual_ + pool_.size_bytes();
    result.depth = depth_;
    result.ready = ready_;
  }
  if (options_.cache_counts) result.cache = options_.cache_counts();
  return result;
}

DataWait LoaderCore::TakeWait() {
  if (IsForked()) return {};
  const Time now = SystemClock().now();
  const Lock lock(mutex_);
  const DataWait result = {.wait = statistics_.consumer_wait - taken_wait_,
                           .elapsed = now - taken_at_};
  taken_wait_ = statistics_.consumer_wait;
  taken_at_ = now;
  return result;
}

/// Tells the log what the oldest batch waits for.
void LoaderCore::SayWhatIsSlow(Lock& lock, Duration waited) {
  ++statistics_.slow_batches;
  if (options_.log == nullptr) return;
  std::string what;
  std::int64_t asked = -1;
  std::int32_t source = -1;
  if (in_flight_.empty()) {
    what = "no batch is planned yet";
  } else {
    const BatchWork& work = *in_flight_.front();
    what = StrCat("batch ", work.number, " is ", Name(work.stage));
    for (const auto& activity : activities_) {
      if (activity->work != &work) continue;
      asked = activity->sample.load(std::memory_order_relaxed);
      const std::size_t count = work.reads.size();
      if (activity->stage == Stage::kReading) {
        source = activity->source;
        what += StrCat("; ", activity->count, " samples of ",
                       sources_[static_cast<std::size_t>(source)]->name(),
                       " are being read, the first is ", asked);
      } else if (activity->stage == Stage::kTransforming) {
        what += StrCat("; sample ", asked, " is being transformed, ", work.done.load(), " of ",
                       count, " are done");
        source = work.groups.size() == 1 ? work.groups[0].source : -1;
      }
    }
  }
  const Unlocked unlocked(*this, lock);
  if (source >= 0 && asked >= 0) what += StrCat(" (", PlaceOf(source, asked).url, ")");
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
  Log(options_.log, Severity::kWarning, "data",
      StrCat("the step waits for data since ", milliseconds, " ms: ", what));
}

}  // namespace internal
}  // namespace ait::inline v0
