// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_FAILURE_CALLBACK_H_
#define AIT_MEMORY_FAILURE_CALLBACK_H_

// A last chance: an adaptor that asks a function of the program when there is no memory left, and
// tries again if that function has made room.
//
//   auto memory = FailureCallbackResource::Create(heap, {.callback = [&](const AllocationFailure&) {
//     return cache.DropHalf() > 0;                   // true: try again
//   }});
//
// Only a lack of memory (ResourceExhausted) is worth another try; other errors are returned at once.

#include <cstddef>
#include <functional>
#include <memory>

#include "ait/base/status.h"
#include "ait/memory/adaptor.h"

namespace ait::inline v0 {

/// What the callback is told.
struct AllocationFailure {
  std::size_t bytes = 0;
  std::size_t alignment = 0;
  int attempt = 1;  // how often this allocation has failed
  Status status;    // of the last try
};

struct FailureCallbackOptions {
  /// True: try again. May allocate from this resource; a failure inside of it does not call it
  /// again. Runs on the thread that allocates, without a lock, on several threads at once.
  std::function<bool(const AllocationFailure&)> callback;
  int max_attempts = 16;  ///< tries of one allocation, the first included
};

class FailureCallbackResource final : public MemoryAdaptor {
 public:
  /// Without a callback it passes everything on.
  static std::shared_ptr<FailureCallbackResource> Create(MemoryHandle upstream,
                                                         FailureCallbackOptions options);

 private:
  FailureCallbackResource(MemoryHandle upstream, FailureCallbackOptions options);
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;

  const FailureCallbackOptions options_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_FAILURE_CALLBACK_H_
