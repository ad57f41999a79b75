// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_STATISTICS_H_
#define AIT_MEMORY_STATISTICS_H_

// Counts what is allocated: an adaptor over any resource, and scopes that count a part of the run.
//
//   auto counted = StatisticsResource::Create(HeapResource::Create());
//   AIT_ASSIGN_OR_RETURN(HostBuffer weights, HostBuffer::Create(counted, bytes));
//   {
//     StatisticsScope forward(counted);
//     RunForward();
//     Print(forward.statistics().peak_bytes);     // above what was there when the scope began
//   }
//   Print(counted->statistics().peak_bytes);      // of all
//
// Scopes may nest, overlap, and belong to different threads; each counts what all threads do.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ait/memory/adaptor.h"
#include "ait/memory/fork_safe_mutex.h"

namespace ait::inline v0 {

/// Bytes as asked for, without what a resource adds; blocks of zero bytes do not count.
struct MemoryStatistics {
  std::int64_t current_bytes = 0;  // held now; of a scope: since it began, negative if less is held
  std::int64_t peak_bytes = 0;     // most ever held; of a scope: above what was held when it began
  std::int64_t total_bytes = 0;    // allocated, freed or not
  std::int64_t current_count = 0;  // the same in blocks
  std::int64_t peak_count = 0;
  std::int64_t total_count = 0;
  std::int64_t failed_count = 0;  // allocations that gave an error

  friend bool operator==(const MemoryStatistics&, const MemoryStatistics&) = default;
};

class StatisticsScope;

class StatisticsResource final : public MemoryAdaptor {
 public:
  static std::shared_ptr<StatisticsResource> Create(MemoryHandle upstream);

  /// Since creation.
  MemoryStatistics statistics() const;

 private:
  friend class StatisticsScope;

  explicit StatisticsResource(MemoryHandle upstream)
      : MemoryAdaptor("statistics", std::move(upstream)) {}
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  mutable ForkSafeMutex mutex_;
  MemoryStatistics statistics_;
  std::vector<StatisticsScope*> scopes_;  // those that are open
};

/// Counts from its beginning to now.
class [[nodiscard]] StatisticsScope {
 public:
  explicit StatisticsScope(std::shared_ptr<StatisticsResource> resource);
  StatisticsScope(const StatisticsScope&) = delete;
  StatisticsScope& operator=(const StatisticsScope&) = delete;
  ~StatisticsScope();

  /// Since the scope began.
  MemoryStatistics statistics() const;

 private:
  friend class StatisticsResource;

  const std::shared_ptr<StatisticsResource> resource_;
  MemoryStatistics begin_;
  std::int64_t peak_bytes_ = 0;  // most that the resource held since; under its mutex
  std::int64_t peak_count_ = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_STATISTICS_H_
