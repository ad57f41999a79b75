// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_THREAD_SAFE_H_
#define AIT_MEMORY_THREAD_SAFE_H_

// One call at a time: an adaptor for a resource that is not safe to call from several threads.
//
// No resource of ait needs it. It is for those that a program writes over something that is not
// thread-safe itself, such as a bump allocator or the allocator of another library:
//
//   MemoryHandle memory = ThreadSafeResource::Create(std::make_shared<BumpResource>(GiB(1)));
//
// All calls must go through it, so hand out no other handle of the resource below. Its lock is held
// while the resource below works, and across a fork (fork_safe_mutex.h).

#include <memory>

#include "ait/memory/adaptor.h"
#include "ait/memory/fork_safe_mutex.h"

namespace ait::inline v0 {

class ThreadSafeResource final : public MemoryAdaptor {
 public:
  static std::shared_ptr<ThreadSafeResource> Create(MemoryHandle upstream);

  MemoryProperties properties() const override;

 private:
  explicit ThreadSafeResource(MemoryHandle upstream);
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  mutable ForkSafeMutex mutex_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_THREAD_SAFE_H_
