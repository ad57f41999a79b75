// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "ait/topology/binding.h"
#include "data/loader/loader_core_internal.h"

namespace ait::inline v0 {
namespace internal {

std::string_view Name(Stage stage) {
  constexpr std::string_view kNames[] = {"waiting for room", "reading", "transforming", "collating",
                                         "ready"};
  return kNames[static_cast<int>(stage)];
}

void LoaderCore::Work(int thread) {
  Activity& activity = *activities_[static_cast<std::size_t>(thread)];
  Status bound = options_.cpus.empty() ? OkStatus() : BindThisThread(options_.cpus);
  // What a thread pins belongs to the context of its current device.
  if (bound.ok() && gpus_ != nullptr && gpus_->count() > 0) bound = gpus_->SetCurrent(device_);
  Lock lock(mutex_);
  if (!bound.ok() && thread_status_.ok()) {
    thread_status_ = Annotate(bound, "a thread of the loader");
    ready_cv_.notify_all();
  }
  while (!is_stopping_) {
    const std::optional<Task> task = PickTask(lock);
    if (task) {
      // There may be more to do for those that sleep.
      if (idle_ > 0) work_cv_.notify_one();
      Run(lock, *task, activity);
      continue;
    }
    if (!trash_.empty()) {
      const Unlocked unlocked(*this, lock);
      continue;
    }
    if (is_stopping_) break;  // since the plan was asked
    const Time begin = SystemClock().now();
    ++idle_;
    work_cv_.wait(lock);
    --idle_;
    statistics_.idle += SystemClock().now() - begin;
  }
}

/// Wakes one thread; each that finds work wakes the next.
void LoaderCore::WakeThreads() {
  if (idle_ > 0) work_cv_.notify_one();
}

std::optional<LoaderCore::Task> LoaderCore::PickTask(Lock& lock) {
  while (!IsHalted()) {
    for (std::size_t i = 0; i < in_flight_.size(); ++i) {
      BatchWork& work = *in_flight_[i];
      switch (work.stage) {
        case Stage::kWaiting:
          // A younger one may be smaller, but must not keep an older one waiting for ever.
          if (!Admit(work)) return std::nullopt;
          [[fallthrough]];
        case Stage::kReading:
          if (work.next_group < work.groups.size()) {
            return Task{&work, Stage::kReading, work.next_group++};
          }
          if (work.groups.empty() && work.active == 0) return Task{&work, Stage::kTransforming};
          break;
        case Stage::kTransforming:
          if (work.next.load(std::memory_order_relaxed) < work.reads.size() && MayGoOn(work)) {
            return Task{&work, Stage::kTransforming};
          }
          break;
        case Stage::kCollating:
          if (work.active == 0 && Grow(work, work.need)) return Task{&work, Stage::kCollating};
          break;
        case Stage::kReady:
          break;
      }
    }
    if (!MayPlan()) break;
    PlanNext(lock);  // others may have changed anything meanwhile
  }
  return std::nullopt;
}

bool LoaderCore::MayPlan() const {
  if (plan_has_ended_ || is_planning_) return false;
  if (in_flight_.empty()) return true;
  // What is delivered behind one that takes long is listed, and the list has an end.
  return in_flight_.size() < static_cast<std::size_t>(depth_) &&
         next_number_ - in_flight_.front()->number < options_.max_ahead;
}

/// Puts the next batch of the plan behind those in flight, unless there is none, or it has been
/// delivered before. The plan is asked without the mutex: it may take long, and call anything.
void LoaderCore::PlanNext(Lock& lock) {
  if (free_.empty()) free_.push_back(std::make_unique<BatchWork>());
  std::unique_ptr<BatchWork> work = std::move(free_.back());
  free_.pop_back();
  const DatasetState from = planned_to_;
  is_planning_ = true;
  ++active_;
  Status status;
  {
    const Unlocked unlocked(*this, lock);
    try {
      status = plan_->NextBatch(from, options_.shard, work->planned);
      if (status.ok() && !work->planned.is_end) Arrange(*work);
    } catch (const std::exception& error) {
      status = InternalError("the plan threw: ", error.what());
    } catch (...) {
      status = InternalError("the plan threw something that is no std::exception");
    }
  }
  is_planning_ = false;
  --active_;
  if (status.ok()) status = std::exchange(work->status, OkStatus());
  if (IsHalted()) {  // it is planned again if the loader goes on
    if (active_ == 0) ready_cv_.notify_all();
    free_.push_back(std::move(work));
    return;
  }
  if (!status.ok() || work->planned.is_end) {
    plan_status_ = status;
    plan_has_ended_ = true;
    free_.push_back(std::move(work));
    ready_cv_.notify_all();
    return;
  }
  planned_to_ = work->planned.after;
  work->number = next_number_++;
  const auto skipped = std::find(skip_.begin(), skip_.end(), planned_to_);
  if (skipped != skip_.end()) {
    skip_.erase(skipped);
    ahead_.emplace(work->number, planned_to_);
    free_.push_back(std::move(work));
    return;
  }
  in_flight_.push_back(std::move(work));
}

/// Sorts the samples of a batch by source, the excluded ones last.
void LoaderCore::Arrange(BatchWork& work) {
  const std::vector<PlannedSample>& planned = work.planned.samples;
  const std::size_t count = planned.size();
  work.reads.resize(count);
  work.slots.clear();
  work.groups.clear();
  work.estimate = static_cast<std::int64_t>(count);
  for (const PlannedSample& sample : planned) {
    if (sample.source < 0 || static_cast<std::size_t>(sample.source) >= sources_.size() ||
        sample.id < 0 ||
        sample.id >= sources_[static_cast<std::size_t>(sample.source)]->sample_count()) {
      work.status =
          InvalidArgumentError("the plan asks for sample ", sample.id, " of source ", sample.source,
                               " of ", sources_.size(), "; it was made for other sources");
      return;
    }
  }
  work.slots.resize(count);
  std::iota(work.slots.begin(), work.slots.end(), std::size_t{0});
  auto end = work.slots.end();
  if (!excluded_.empty()) {
    end = std::stable_partition(work.slots.begin(), end, [&](std::size_t slot) {
      const PlannedSample& sample = planned[slot];
      const std::uint64_t digest = digests_[static_cast<std::size_t>(sample.source)];
      return !excluded_.contains({digest, sample.id});
    });
  }
  work.excluded_begin = static_cast<std::size_t>(end - work.slots.begin());
  const auto by_source = [&](std::size_t a, std::size_t b) {
    return planned[a].source < planned[b].source;
  };
  if (!std::is_sorted(work.slots.begin(), end, by_source)) {
    std::stable_sort(work.slots.begin(), end, by_source);
  }
  for (std::size_t i = 0; i < work.excluded_begin; ++i) {
    const std::int32_t source = planned[work.slots[i]].source;
    if (work.groups.empty() || work.groups.back().source != source) {
      work.groups.push_back({source, i, i});
    }
    work.groups.back().end = i + 1;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const PlannedSample& sample = planned[work.slots[i]];
    work.reads[i].id = sample.id;
    work.reads[i].status = OkStatus();
    work.estimate += sources_[static_cast<std::size_t>(sample.source)]->size_bytes(sample.id);
  }
  work.need = 0;
}

/// Takes room for a batch that begins, as much as it will probably need.
bool LoaderCore::Admit(BatchWork& work) {
  const bool others_begun = std::any_of(
      in_flight_.begin(), in_flight_.end(),
      [&](const auto& other) { return other.get() != &work && other->stage != Stage::kWaiting; });
  if (ratio_ == 0 && others_begun) return false;  // one shows what they need
  const auto expected =
      static_cast<std::int64_t>(static_cast<double>(work.estimate) * std::max(ratio_, 1.0));
  if (!Grow(work, std::max(expected, work.need))) return false;
  MakeRoomInPool(work.estimate);
  SetActual(work, work.estimate);
  work.stage = Stage::kReading;
  work.next_group = 0;
  work.groups_left = work.groups.size();
  work.next.store(0, std::memory_order_relaxed);
  work.done.store(0, std::memory_order_relaxed);
  work.size.store(0, std::memory_order_relaxed);
  work.peak.store(0, std::memory_order_relaxed);
  return true;
}

/// Raises the charge of a batch to `need`. False if there is no room; it then knows what it needs.
bool LoaderCore::Grow(BatchWork& work, std::int64_t need) {
  const std::int64_t extra = need - work.charge.load(std::memory_order_relaxed);
  if (extra > 0 && charged_ + extra > Limit()) {
    work.need = std::max(work.need, need);
    if (!IsOldest(work)) return false;
    GiveUpYoungest(work, Limit() - extra);
    // What is larger than the budget goes on alone.
    const bool is_alone = charged_ == work.charge.load(std::memory_order_relaxed);
    if (charged_ + extra > Limit() && !is_alone) return false;
  }
  if (extra > 0) SetCharge(work, need);
  return true;
}

/// Whether a batch may transform one more sample.
bool LoaderCore::MayGoOn(BatchWork& work) {
  if (!work.is_parked.load(std::memory_order_relaxed)) return true;
  if (charged_ > Limit()) {
    if (!IsOldest(work)) return false;
    GiveUpYoungest(work, Limit());
    const bool is_alone = charged_ == work.charge.load(std::memory_order_relaxed);
    if (charged_ > Limit() && !is_alone) return false;
  }
  work.is_parked.store(false, std::memory_order_relaxed);
  return true;
}

/// Throws away batches that nobody works on, the youngest first, until at most `room` is charged.
void LoaderCore::GiveUpYoungest(const BatchWork& keep, std::int64_t room) {
  for (std::size_t i = in_flight_.size(); i-- > 0 && charged_ > room;) {
    BatchWork& work = *in_flight_[i];
    if (&work == &keep || work.active > 0 || work.is_copied || work.stage == Stage::kWaiting) {
      continue;
    }
    if (work.stage == Stage::kReady) --ready_;
    const std::int64_t need = std::max(work.need, work.peak.load(std::memory_order_relaxed));
    Reset(work);
    work.need = need;
    ++statistics_.given_up;
  }
}

/// Gives back all that a batch holds, and leaves its plan.
void LoaderCore::Reset(BatchWork& work) {
  for (BatchArray& array : work.batch.arrays) {
    pool_.Put(std::move(array.buffer));
    array.buffer = HostBuffer();
    array.device = nullptr;
  }
  work.batch.arrays.clear();
  for (SampleRead& read : work.reads) read.sample.fields.clear();
  for (Sample& sample : work.batch.samples) sample.fields.clear();
  for (SampleRead& read : work.reads) read.status = OkStatus();
  if (work.stage == Stage::kReady) work.batch.planned.swap(work.planned.samples);
  // Those that stood in for bad ones are forgotten, or nobody would count them the next time.
  if (work.slots.size() == work.reads.size() && work.planned.samples.size() == work.reads.size()) {
    for (std::size_t i = 0; i < work.reads.size(); ++i) {
      work.reads[i].id = work.planned.samples[work.slots[i]].id;
    }
  }
  work.status = OkStatus();
  work.bad.clear();
  work.bad_places.clear();
  work.stand_ins = 0;
  work.bytes_read = 0;
  work.bytes_transformed = 0;
  work.need = 0;
  work.is_repaired = false;
  work.is_copied = false;
  work.is_parked.store(false, std::memory_order_relaxed);
  work.read = work.transform = work.collate = {};
  work.stage = Stage::kWaiting;
  SetActual(work, 0);
  SetCharge(work, 0);
  MakeRoomInPool(0);
}

void LoaderCore::SetCharge(BatchWork& work, std::int64_t charge) {
  charged_ += charge - work.charge.load(std::memory_order_relaxed);
  work.charge.store(charge, std::memory_order_relaxed);
}

void LoaderCore::SetActual(BatchWork& work, std::int64_t actual) {
  actual_ += actual - work.actual.load(std::memory_order_relaxed);
  work.actual.store(actual, std::memory_order_relaxed);
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, actual_ + pool_.size_bytes());
}

/// What may be charged: the budget without what the threads hold while they transform, which is
/// counted only afterwards.
std::int64_t LoaderCore::Limit() const {
  const std::int64_t apart = largest_.load(std::memory_order_relaxed) * std::max(thread_count_, 1);
  return budget_bytes_ - std::min(apart, budget_bytes_ / 4);
}

/// Gives free buffers back until `bytes` more fit.
void LoaderCore::MakeRoomInPool(std::int64_t bytes) {
  pool_.Trim(Limit() - actual_ - bytes, trash_);
}

}  // namespace internal
}  // namespace ait::inline v0
