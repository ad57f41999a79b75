// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/failure_callback.h"

#include <utility>

#include "memory/inside_internal.h"

namespace ait::inline v0 {

using internal::Inside;

std::shared_ptr<FailureCallbackResource> FailureCallbackResource::Create(
    MemoryHandle upstream, FailureCallbackOptions options) {
  return std::shared_ptr<FailureCallbackResource>(
      new FailureCallbackResource(std::move(upstream), std::move(options)));
}

FailureCallbackResource::FailureCallbackResource(MemoryHandle upstream,
                                                 FailureCallbackOptions options)
    : MemoryAdaptor("failure callback", std::move(upstream)), options_(std::move(options)) {}

StatusOr<void*> FailureCallbackResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  for (int attempt = 1;; ++attempt) {
    StatusOr<void*> block = upstream().Allocate(bytes, alignment);
    if (block.ok() || block.status().code() != StatusCode::kResourceExhausted ||
        options_.callback == nullptr || attempt >= options_.max_attempts || Inside::Is(this)) {
      return block;
    }
    const Inside inside(this);
    const AllocationFailure failure = {
        .bytes = bytes, .alignment = alignment, .attempt = attempt, .status = block.status()};
    if (!options_.callback(failure)) return block;
  }
}

}  // namespace ait::inline v0
