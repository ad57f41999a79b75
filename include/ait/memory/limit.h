// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_LIMIT_H_
#define AIT_MEMORY_LIMIT_H_

// A hard limit: an adaptor that refuses what would exceed a number of bytes, and says who holds
// them.
//
//   auto tracked = TrackingResource::Create(HeapResource::Create());
//   AIT_ASSIGN_OR_RETURN(auto limited, LimitResource::Create(tracked, {.limit = GiB(2),
//                                                                      .tracking = tracked}));
//   // cannot allocate 1048576 bytes from limit(tracking(heap)): 2147000320 of 2147483648 bytes are
//   // held, most by "forward/attention" (1610612736 bytes in 96 blocks); …
//
// It counts bytes as asked for, without what the resource below adds. It is a limit, not a
// reservation: below it the resource may still have no room. Several resources share a limit when
// they stand on the same LimitResource.

#include <atomic>
#include <cstdint>
#include <memory>

#include "ait/base/types.h"
#include "ait/memory/adaptor.h"
#include "ait/memory/tracking.h"

namespace ait::inline v0 {

struct LimitOptions {
  Bytes limit{0};  ///< at least 1
  /// Who knows the holders, for the text of errors; above or below this in the stack.
  std::weak_ptr<TrackingResource> tracking = {};
};

class LimitResource final : public MemoryAdaptor {
 public:
  /// **Errors.** InvalidArgument: the limit is below 1.
  static StatusOr<std::shared_ptr<LimitResource>> Create(MemoryHandle upstream,
                                                         const LimitOptions& options);

  Bytes limit() const { return Bytes(limit_.load(std::memory_order_relaxed)); }
  /// Bytes that are out.
  Bytes held() const { return Bytes(held_.load(std::memory_order_relaxed)); }

  /// Changes the limit. Below what is held, it refuses everything until enough is given back.
  /// **Errors.** InvalidArgument: the limit is below 1.
  Status SetLimit(Bytes limit);

  /// For a TrackingResource that stands on this one, which cannot be known at creation.
  /// **Thread-safety.** Before the first allocation.
  void SetTracking(std::weak_ptr<TrackingResource> tracking) { tracking_ = std::move(tracking); }

 private:
  LimitResource(MemoryHandle upstream, const LimitOptions& options);
  Status Refuse(std::size_t bytes, std::int64_t held, std::int64_t limit) const;
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  std::atomic<std::int64_t> limit_;
  std::atomic<std::int64_t> held_ = 0;
  std::weak_ptr<TrackingResource> tracking_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_LIMIT_H_
