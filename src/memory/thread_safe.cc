// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/thread_safe.h"

#include <mutex>
#include <utility>

namespace ait::inline v0 {

std::shared_ptr<ThreadSafeResource> ThreadSafeResource::Create(MemoryHandle upstream) {
  return std::shared_ptr<ThreadSafeResource>(new ThreadSafeResource(std::move(upstream)));
}

ThreadSafeResource::ThreadSafeResource(MemoryHandle upstream)
    : MemoryAdaptor("thread-safe", std::move(upstream)) {}

MemoryProperties ThreadSafeResource::properties() const {
  const std::lock_guard lock(mutex_);
  return MemoryAdaptor::properties();
}

StatusOr<void*> ThreadSafeResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(mutex_);
  return upstream().Allocate(bytes, alignment);
}

void ThreadSafeResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(mutex_);
  upstream().Deallocate(block, bytes, alignment);
}

}  // namespace ait::inline v0
