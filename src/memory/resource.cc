// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/resource.h"

#include <algorithm>
#include <bit>

#include "base/memory_refusal.h"

namespace ait::inline v0 {

StatusOr<void*> MemoryResource::Allocate(std::size_t bytes, std::size_t alignment) {
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
    return InvalidArgumentError("cannot allocate from ", properties().name, ": alignment ",
                                alignment, " is not a power of two from 1 to ", kMaxAlignment);
  }
  if (bytes > kMaxBytes) {
    return InvalidArgumentError("cannot allocate ", bytes, " bytes from ", properties().name,
                                ": more than any machine has (", kMaxBytes,
                                "); check that the size is not negative and did not overflow");
  }
  if (bytes == 0) return nullptr;
  StatusOr<void*> block = DoAllocate(bytes, std::max(alignment, kMinAlignment));
  if (block.status().code() == StatusCode::kResourceExhausted) {
    return internal::WithRefusal(block.status(),
                                 {.asked = Bytes(static_cast<std::int64_t>(bytes))});
  }
  return block;
}

void MemoryResource::Deallocate(void* block, std::size_t bytes, std::size_t alignment) {
  if (block != nullptr) DoDeallocate(block, bytes, std::max(alignment, kMinAlignment));
}

StatusOr<void*> MemoryHandle::Allocate(std::size_t bytes, std::size_t alignment) const {
  if (resource_ == nullptr) {
    return FailedPreconditionError("cannot allocate ", bytes,
                                   " bytes: the memory handle is empty; make it from a resource, "
                                   "such as HeapResource::Create()");
  }
  return resource_->Allocate(bytes, alignment);
}

void MemoryHandle::Deallocate(void* block, std::size_t bytes, std::size_t alignment) const {
  if (resource_ != nullptr) resource_->Deallocate(block, bytes, alignment);
}

MemoryProperties MemoryHandle::properties() const {
  return resource_ != nullptr ? resource_->properties() : MemoryProperties{.name = "none"};
}

}  // namespace ait::inline v0
