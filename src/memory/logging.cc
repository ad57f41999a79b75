// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/logging.h"

#include <unistd.h>

#include <mutex>
#include <utility>

#include "memory/inside_internal.h"

namespace ait::inline v0 {

using internal::Inside;

std::shared_ptr<LoggingResource> LoggingResource::Create(MemoryHandle upstream,
                                                         LoggingOptions options) {
  return std::shared_ptr<LoggingResource>(
      new LoggingResource(std::move(upstream), std::move(options)));
}

LoggingResource::LoggingResource(MemoryHandle upstream, LoggingOptions options)
    : MemoryAdaptor("logging", std::move(upstream)), options_(std::move(options)) {}

StatusOr<void*> LoggingResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  StatusOr<void*> block = upstream().Allocate(bytes, alignment);
  Write(AllocationEventKind::kAllocate, block.ok() ? *block : nullptr, bytes, alignment,
        block.status());
  return block;
}

void LoggingResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  Write(AllocationEventKind::kDeallocate, block, bytes, alignment, OkStatus());
  upstream().Deallocate(block, bytes, alignment);
}

void LoggingResource::Write(AllocationEventKind kind, const void* block, std::size_t bytes,
                            std::size_t alignment, const Status& status) {
  if (Inside::Is(this)) return;
  const Inside inside(this);
  const std::lock_guard lock(mutex_);
  const AllocationEvent event = {.time = std::chrono::steady_clock::now() - start_,
                                 .thread = gettid(),
                                 .kind = kind,
                                 .address = reinterpret_cast<std::uintptr_t>(block),
                                 .bytes = bytes,
                                 .alignment = alignment,
                                 .result = status.code()};
  if (options_.writer != nullptr) options_.writer(event);
  if (options_.log == nullptr) return;
  std::string line = ToCsv(event);
  line.pop_back();
  Log(options_.log, status.ok() ? Severity::kInfo : Severity::kWarning, "memory",
      status.ok() ? line : StrCat(line, ": ", Message(status)));
}

}  // namespace ait::inline v0
