// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_LOADER_CORE_INTERNAL_H_
#define AIT_DATA_LOADER_LOADER_CORE_INTERNAL_H_

// The machine behind DataLoader: batches in flight, the threads that work on them, and the budget.
//
// A thread always takes the work of the oldest batch that has some. Every byte that a batch holds
// is charged; a batch that lacks room is left until it is the oldest, and then gets it at the cost
// of the youngest, whose samples are thrown away and read again later. So the oldest always moves,
// and the budget holds unless one batch alone exceeds it.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/loader/data_loader.h"
#include "data/loader/batch_work_internal.h"
#include "data/loader/buffer_pool_internal.h"

namespace ait::inline v0 {
namespace internal {

/// What a thread does now, for the watchdog. Under the mutex, but for `sample`.
struct Activity {
  const BatchWork* work = nullptr;
  Stage stage = Stage::kWaiting;
  std::int32_t source = 0;
  std::int64_t count = 0;                // samples of a read
  std::atomic<std::int64_t> sample{-1};  // that is transformed, or the first of a read
};

class LoaderCore {
 public:
  /// `gpus`, where there are some, are those that `options.memory` is pinned for.
  LoaderCore(std::shared_ptr<const BatchPlan> plan,
             std::vector<std::shared_ptr<const SampleSource>> sources, LoaderOptions options,
             int threads, std::shared_ptr<DeviceRuntime> gpus);
  ~LoaderCore();

  /// Opens the log of bad samples and the device, and tries the plan.
  Status Open();

  const DataBatch* Next();
  const Status& status() const { return status_; }
  DatasetState state() const { return state_; }
  std::vector<DatasetState> delivered_ahead() const;
  /// In a forked child: it has no threads, and cannot be destroyed.
  bool IsForked() const;
  Status Restore(const DatasetState& state, std::span<const DatasetState> ahead);
  void Cancel();
  LoaderStatistics statistics() const;
  DataWait TakeWait();

 private:
  using Lock = std::unique_lock<std::mutex>;
  class Builder;
  /// The mutex is free while it lives, and what is in `trash_` is freed first.
  class Unlocked {
   public:
    Unlocked(LoaderCore& core, Lock& lock) : lock_(lock) {
      const std::vector<HostBuffer> trash = std::move(core.trash_);
      core.trash_.clear();
      lock_.unlock();
    }
    ~Unlocked() { lock_.lock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

   private:
    Lock& lock_;
  };
  struct Task {
    BatchWork* work = nullptr;
    Stage stage = Stage::kWaiting;
    std::size_t group = 0;
  };

  // Consumer (loader_core.cc).
  const DataBatch* NextLocked(Lock& lock);
  Status StartThreads();
  BatchWork* WaitForBatch(Lock& lock);
  std::size_t FindDeliverable() const;
  void TakeBack(Lock& lock);
  void TakeBackCopied(Lock& lock, std::size_t most);
  Status CopyToDevice(Lock& lock);
  Status Commit(BatchWork& work);
  void Delivered(const BatchWork& work);
  void AdvanceState();
  void AdaptDepth(bool waited);
  void SayWhatIsSlow(Lock& lock, Duration waited);
  Status TryPlan(const DatasetState& state) const;

  // Threads and budget (loader_schedule.cc).
  void Work(int thread);
  std::optional<Task> PickTask(Lock& lock);
  bool MayPlan() const;
  void PlanNext(Lock& lock);
  void Arrange(BatchWork& work);
  bool Admit(BatchWork& work);
  bool Grow(BatchWork& work, std::int64_t need);
  bool MayGoOn(BatchWork& work);
  bool IsOldest(const BatchWork& work) const { return in_flight_.front().get() == &work; }
  void GiveUpYoungest(const BatchWork& keep, std::int64_t room);
  void Reset(BatchWork& work);
  void SetCharge(BatchWork& work, std::int64_t charge);
  void SetActual(BatchWork& work, std::int64_t actual);
  void MakeRoomInPool(std::int64_t bytes);
  std::int64_t Limit() const;
  void WakeThreads();

  // Work on one batch, without the mutex (loader_work.cc).
  void Run(Lock& lock, const Task& task, Activity& activity);
  void Read(BatchWork& work, const ReadGroup& group);
  void TransformSamples(BatchWork& work, Activity& activity);
  void Grown(BatchWork& work);
  void TransformOne(const PlannedSample& planned, SampleRead& read) const;
  void Collate(Lock& lock, BatchWork& work, Activity& activity);
  Status CollateUnlocked(BatchWork& work);
  Status Repair(BatchWork& work);
  Status StandIn(BatchWork& work, std::size_t index);
  StatusOr<bool> TryOther(BatchWork& work, std::size_t index, std::int64_t attempt,
                          std::optional<std::int64_t> length, SampleRandom& choice);
  static void MakeEmpty(BatchWork& work, std::size_t index);
  BadSample Describe(const BatchWork& work, std::size_t slot, const SampleRead& read,
                     std::int64_t attempt) const;
  void AddBad(BatchWork& work, std::size_t slot, const SampleRead& read,
              std::int64_t attempt) const;
  bool IsBeyondBudget(const BatchWork& work) const;
  SamplePlace PlaceOf(std::int32_t source, std::int64_t id) const;
  bool IsBad(const Status& status) const;
  void KeepOwn(BatchWork& work);
  bool IsHalted() const { return halted_.load(std::memory_order_relaxed); }

  const std::shared_ptr<const BatchPlan> plan_;
  const std::vector<std::shared_ptr<const SampleSource>> sources_;
  const LoaderOptions options_;
  const int thread_count_;
  const std::int64_t budget_bytes_;
  const ait::Collate collate_;
  std::set<SampleId> excluded_;
  std::vector<std::uint64_t> digests_;  // of the sources
  const int forks_;
  const std::shared_ptr<DeviceRuntime> gpus_;
  Device device_;  // that the threads have as their current one

  // Of the consumer alone.
  Status status_;
  DatasetState state_;
  std::unique_ptr<BatchWork> held_;  // with the caller
  std::unique_ptr<DeviceCopies> copies_;
  std::deque<std::unique_ptr<BatchWork>> copying_;  // taken back, but still read by the device
  BadSampleBudget bad_budget_;
  std::optional<BadSampleLog> bad_log_;
  std::set<std::array<std::int64_t, 4>> counted_;  // bad ones: {source, epoch, position, attempt}
  std::int64_t delivered_ = 0;                     // batches up to state_
  bool is_end_ = false;
  int calm_ = 0;  // deliveries since the last wait or change of depth
  int least_ready_ = 0;
  Duration taken_wait_{};
  Time taken_at_;

  mutable std::mutex mutex_;
  std::condition_variable work_cv_;   // threads wait for work
  std::condition_variable ready_cv_;  // the consumer waits for a batch, or for threads to stop
  std::deque<std::unique_ptr<BatchWork>> in_flight_;  // ascending by number
  std::vector<std::unique_ptr<BatchWork>> free_;
  std::vector<HostBuffer> trash_;  // to be freed by whoever leaves the mutex
  BufferPool pool_;
  std::int64_t charged_ = 0;
  std::int64_t actual_ = 0;
  double ratio_ = 0;  // most bytes of a batch by its estimate; 0: not known yet
  std::atomic<std::int64_t> largest_ = 0;  // most bytes of a sample before and after a transform
  double transformed_ratio_ = 0;           // the same of its samples once they are transformed
  DatasetState planned_to_;
  std::vector<DatasetState> skip_;              // delivered before, and not planned yet
  std::map<std::int64_t, DatasetState> ahead_;  // delivered beyond state_, by number
  std::int64_t next_number_ = 0;
  Status plan_status_;
  Status thread_status_;  // why a thread could not begin
  bool plan_has_ended_ = false;
  bool is_planning_ = false;  // a thread asks the plan
  int depth_ = 1;
  int ready_ = 0;
  int idle_ = 0;
  int active_ = 0;
  bool is_cancelled_ = false;
  bool is_stopping_ = false;          // threads end
  std::atomic<bool> halted_ = false;  // threads take no more work
  LoaderStatistics statistics_;
  std::vector<std::unique_ptr<Activity>> activities_;
  std::vector<std::thread> threads_;
};

std::string_view Name(Stage stage);

/// Memory of the arrays where the options name none.
StatusOr<MemoryHandle> DefaultBatchMemory(const std::shared_ptr<DeviceRuntime>& gpus);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_LOADER_CORE_INTERNAL_H_
