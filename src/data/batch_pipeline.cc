// SPDX-License-Identifier: Apache-2.0
#include <system_error>
#include <utility>

#include "ait/topology/binding.h"
#include "data/batch_pipeline_internal.h"

namespace ait::inline v0 {
namespace internal {

BatchPipeline::BatchPipeline(std::vector<BatchSlot> slots, std::function<void(BatchSlot&)> fill,
                             CpuSet cpus)
    : slots_(std::move(slots)), fill_(std::move(fill)), cpus_(std::move(cpus)) {}

BatchPipeline::~BatchPipeline() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

StatusOr<BatchSlot*> BatchPipeline::Next() {
  if (slots_.size() == 1) {
    if (taken_ == 0 || !IsLast(slots_[0])) fill_(slots_[0]);
    taken_ = 1;
    return &slots_[0];
  }
  if (taken_ > 0 && IsLast(slots_[(taken_ - 1) % slots_.size()])) {
    return &slots_[(taken_ - 1) % slots_.size()];
  }
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { FillAhead(); });
    } catch (const std::system_error& error) {
      return ResourceExhaustedError("cannot start the thread that reads ahead: ", error.what(),
                                    "; set prefetch to 0 bytes to do without");
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return filled_ > taken_; });
  BatchSlot* const slot = &slots_[taken_ % slots_.size()];
  ++taken_;
  lock.unlock();
  changed_.notify_all();
  return slot;
}

void BatchPipeline::FillAhead() {
  const Status bound = cpus_.empty() ? OkStatus() : BindThisThread(cpus_);
  std::unique_lock lock(mutex_);
  for (;;) {
    // The slot of number taken_ - 1 is with the caller.
    const auto has_room = [&] { return filled_ + 1 < taken_ + slots_.size(); };
    changed_.wait(lock, [&] { return stopping_ || has_room(); });
    if (stopping_) return;
    BatchSlot& slot = slots_[filled_ % slots_.size()];
    lock.unlock();
    if (bound.ok()) {
      fill_(slot);
    } else {
      slot.status = Annotate(bound, "the thread that reads ahead");
    }
    const bool is_last = IsLast(slot);
    lock.lock();
    ++filled_;
    changed_.notify_all();
    if (is_last) return;
  }
}

}  // namespace internal
}  // namespace ait::inline v0
