// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_LOGGING_H_
#define AIT_MEMORY_LOGGING_H_

// Every allocation and release, in order: an adaptor that reports each of them, two formats to
// write them in, and a replay of what was written.
//
//   std::ofstream file("allocations.csv");
//   file << AllocationCsvHeader();
//   auto memory = LoggingResource::Create(heap, {.writer = [&](const AllocationEvent& event) {
//     file << ToCsv(event);
//   }});
//
//   AIT_ASSIGN_OR_RETURN(auto events, ParseAllocationCsv(text));
//   AIT_ASSIGN_OR_RETURN(ReplayResult result, ReplayAllocations(events, other_memory));
//
// The format, a line each: `time_ns,thread,event,address,bytes,alignment,result`. The time counts
// from the creation of the resource on a steady clock; the thread is the kernel's number; the event
// is `allocate` or `deallocate`; the address is hexadecimal, 0x0 if there is none; the result is
// `OK` or the name of the code of the error. As JSON: one object a line with the same names.
//
// The order is one in which the same calls can be made again: a release is written before the block
// is free for others, an allocation after it was made.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/memory/adaptor.h"
#include "ait/memory/fork_safe_mutex.h"

namespace ait::inline v0 {

enum class AllocationEventKind { kAllocate, kDeallocate };

struct AllocationEvent {
  std::chrono::nanoseconds time{0};
  std::int64_t thread = 0;
  AllocationEventKind kind = AllocationEventKind::kAllocate;
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  std::size_t alignment = 0;
  StatusCode result = StatusCode::kOk;

  friend bool operator==(const AllocationEvent&, const AllocationEvent&) = default;
};

struct LoggingOptions {
  /// Gets the events, one at a time. It may use the resource; what it does there is not reported.
  std::function<void(const AllocationEvent&)> writer = {};
  LogSink* log = nullptr;  ///< gets a line of text for each, failures as warnings
};

class LoggingResource final : public MemoryAdaptor {
 public:
  static std::shared_ptr<LoggingResource> Create(MemoryHandle upstream, LoggingOptions options);

 private:
  LoggingResource(MemoryHandle upstream, LoggingOptions options);
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  void Write(AllocationEventKind kind, const void* block, std::size_t bytes, std::size_t alignment,
             const Status& status);

  const LoggingOptions options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  ForkSafeMutex mutex_;  // one event after the other
};

/// The names of the columns, and an event in them; each with its newline.
std::string AllocationCsvHeader();
std::string ToCsv(const AllocationEvent& event);
/// As an object on one line, with its newline.
std::string ToJson(const AllocationEvent& event);

/// Reads what ToCsv wrote; a header and empty lines are skipped. **Errors.** InvalidArgument with
/// the number of the first line that is something else.
StatusOr<std::vector<AllocationEvent>> ParseAllocationCsv(std::string_view text);

struct ReplayResult {
  std::int64_t allocations = 0;
  std::int64_t deallocations = 0;
  std::int64_t failures = 0;    // allocations that failed now, not then
  std::int64_t peak_bytes = 0;  // as asked for
  std::int64_t left_count = 0;  // blocks that the log did not give back; the replay did
};

/// Makes the successful calls of `events` again, on one thread, touching nothing of the blocks.
/// **Errors.** InvalidArgument: a block is given back that is not out, or with another size.
StatusOr<ReplayResult> ReplayAllocations(std::span<const AllocationEvent> events,
                                         const MemoryHandle& memory);

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_LOGGING_H_
