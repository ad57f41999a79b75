// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_BATCH_PIPELINE_INTERNAL_H_
#define AIT_DATA_BATCH_PIPELINE_INTERNAL_H_

// A ring of batches: one thread fills them ahead, the caller takes them in order.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/dataset_state.h"
#include "ait/data/token_batch.h"
#include "ait/topology/id_set.h"

namespace ait::inline v0 {
namespace internal {

struct BatchSlot {
  TokenBatch batch;
  DatasetState after;   // the state once this batch is delivered
  Status status;        // not ok: the batch could not be read
  bool is_end = false;  // no batch: the data has ended
};

/// **Thread-safety.** `Next` from one thread at a time; `fill` is called by one thread at a time.
class BatchPipeline {
 public:
  /// `fill` reads the next batch into a slot. It is not called again after an end or an error. One
  /// slot: filled in `Next` itself. More: one is with the caller, the others are filled ahead by a
  /// thread that is bound to `cpus`, unless that is empty; if it cannot be, that is the first slot's
  /// error.
  BatchPipeline(std::vector<BatchSlot> slots, std::function<void(BatchSlot&)> fill,
                CpuSet cpus = {});
  /// Waits for the read that is under way, not for the caller to take anything.
  ~BatchPipeline();
  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;

  /// Takes back the slot returned before and returns the next. Repeats an end or an error for ever.
  /// Starts the thread at the first call. **Errors.** ResourceExhausted: no thread to be had.
  StatusOr<BatchSlot*> Next();

 private:
  void FillAhead();
  static bool IsLast(const BatchSlot& slot) { return slot.is_end || !slot.status.ok(); }

  std::vector<BatchSlot> slots_;
  std::function<void(BatchSlot&)> fill_;
  const CpuSet cpus_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Batches are numbered from 0; number k lies in slot k mod size. taken_ ≤ filled_ ≤ taken_ + size
  // - 1.
  std::size_t filled_ = 0;  // batches that are ready or were
  std::size_t taken_ = 0;   // batches given to the caller, who holds number taken_ - 1
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_BATCH_PIPELINE_INTERNAL_H_
