// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/limit.h"

#include <utility>
#include <vector>

namespace ait::inline v0 {
namespace {

Status CheckLimit(Bytes limit, const std::string& name) {
  if (limit >= Bytes(1)) return OkStatus();
  return InvalidArgumentError("cannot limit ", name, " to ", limit,
                              " bytes; a limit is at least 1, and no limit is the resource itself");
}

}  // namespace

StatusOr<std::shared_ptr<LimitResource>> LimitResource::Create(MemoryHandle upstream,
                                                               const LimitOptions& options) {
  AIT_RETURN_IF_ERROR(CheckLimit(options.limit, upstream.properties().name));
  return std::shared_ptr<LimitResource>(new LimitResource(std::move(upstream), options));
}

LimitResource::LimitResource(MemoryHandle upstream, const LimitOptions& options)
    : MemoryAdaptor("limit", std::move(upstream)),
      limit_(options.limit.value()),
      tracking_(options.tracking) {}

Status LimitResource::SetLimit(Bytes limit) {
  AIT_RETURN_IF_ERROR(CheckLimit(limit, upstream().properties().name));
  limit_.store(limit.value(), std::memory_order_relaxed);
  return OkStatus();
}

Status LimitResource::Refuse(std::size_t bytes, std::int64_t held, std::int64_t limit) const {
  std::string most;
  if (const auto tracking = tracking_.lock()) {
    if (const std::vector<MemoryHolder> largest = tracking->Largest(1); !largest.empty()) {
      most = StrCat(", most by \"", largest[0].label, "\" (", largest[0].bytes, " bytes in ",
                    largest[0].count, largest[0].count == 1 ? " block)" : " blocks)");
    }
  }
  return ResourceExhaustedError("cannot allocate ", bytes, " bytes from ", properties().name, ": ",
                                held, " of ", limit, " bytes are held", most,
                                "; give some back or raise the limit");
}

StatusOr<void*> LimitResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  const auto asked = static_cast<std::int64_t>(bytes);
  std::int64_t held = held_.load(std::memory_order_relaxed);
  do {
    const std::int64_t limit = limit_.load(std::memory_order_relaxed);
    if (asked > limit - held) return Refuse(bytes, held, limit);
  } while (!held_.compare_exchange_weak(held, held + asked, std::memory_order_relaxed));
  StatusOr<void*> block = upstream().Allocate(bytes, alignment);
  if (!block.ok()) held_.fetch_sub(asked, std::memory_order_relaxed);
  return block;
}

void LimitResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  upstream().Deallocate(block, bytes, alignment);
  held_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

}  // namespace ait::inline v0
