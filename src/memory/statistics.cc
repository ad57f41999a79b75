// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/statistics.h"

#include <algorithm>
#include <mutex>

namespace ait::inline v0 {

std::shared_ptr<StatisticsResource> StatisticsResource::Create(MemoryHandle upstream) {
  return std::shared_ptr<StatisticsResource>(new StatisticsResource(std::move(upstream)));
}

MemoryStatistics StatisticsResource::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

StatusOr<void*> StatisticsResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  StatusOr<void*> block = upstream().Allocate(bytes, alignment);
  const std::lock_guard lock(mutex_);
  if (!block.ok()) {
    ++statistics_.failed_count;
    return block;
  }
  statistics_.current_bytes += static_cast<std::int64_t>(bytes);
  statistics_.total_bytes += static_cast<std::int64_t>(bytes);
  ++statistics_.current_count;
  ++statistics_.total_count;
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.current_bytes);
  statistics_.peak_count = std::max(statistics_.peak_count, statistics_.current_count);
  for (StatisticsScope* scope : scopes_) {
    scope->peak_bytes_ = std::max(scope->peak_bytes_, statistics_.current_bytes);
    scope->peak_count_ = std::max(scope->peak_count_, statistics_.current_count);
  }
  return block;
}

void StatisticsResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  {  // first: the block may be another thread's as soon as it is back, and be counted again
    const std::lock_guard lock(mutex_);
    statistics_.current_bytes -= static_cast<std::int64_t>(bytes);
    --statistics_.current_count;
  }
  upstream().Deallocate(block, bytes, alignment);
}

StatisticsScope::StatisticsScope(std::shared_ptr<StatisticsResource> resource)
    : resource_(std::move(resource)) {
  const std::lock_guard lock(resource_->mutex_);
  begin_ = resource_->statistics_;
  peak_bytes_ = begin_.current_bytes;
  peak_count_ = begin_.current_count;
  resource_->scopes_.push_back(this);
}

StatisticsScope::~StatisticsScope() {
  const std::lock_guard lock(resource_->mutex_);
  std::erase(resource_->scopes_, this);
}

MemoryStatistics StatisticsScope::statistics() const {
  const std::lock_guard lock(resource_->mutex_);
  const MemoryStatistics& now = resource_->statistics_;
  return {.current_bytes = now.current_bytes - begin_.current_bytes,
          .peak_bytes = peak_bytes_ - begin_.current_bytes,
          .total_bytes = now.total_bytes - begin_.total_bytes,
          .current_count = now.current_count - begin_.current_count,
          .peak_count = peak_count_ - begin_.current_count,
          .total_count = now.total_count - begin_.total_count,
          .failed_count = now.failed_count - begin_.failed_count};
}

}  // namespace ait::inline v0
