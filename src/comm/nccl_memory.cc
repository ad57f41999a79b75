// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_memory.h"

#include <cstdint>
#include <iterator>

#include "device/device_api.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;  // of ncclMemAlloc

std::byte* AlignUp(const std::byte* address, std::size_t alignment) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<std::byte*>((value + alignment - 1) / alignment * alignment);
}

}  // namespace

NcclMemory::NcclMemory(std::shared_ptr<NcclLibrary> library, std::shared_ptr<DeviceRuntime> devices,
                       Device device)
    : library_(std::move(library)), devices_(std::move(devices)), device_(device) {}

NcclMemory::~NcclMemory() {
  for (const auto& [begin, block] : blocks_) {
    void* const address = const_cast<std::byte*>(begin);
    if (library_->registers()) {
      library_->ncclMemFree(address);
    } else {
      devices_->api().Free(device_, address);
    }
  }
}

MemoryProperties NcclMemory::properties() const {
  return {.name = StrCat("device ", device_, " (NCCL)"), .residence = Residence::kDevice};
}

std::optional<std::pair<void*, std::size_t>> NcclMemory::Find(const void* address) const {
  std::lock_guard lock(mutex_);
  const auto* wanted = static_cast<const std::byte*>(address);
  auto next = blocks_.upper_bound(wanted);
  if (next == blocks_.begin()) return std::nullopt;
  --next;
  if (wanted >= next->first + next->second.bytes) return std::nullopt;
  return std::pair<void*, std::size_t>(const_cast<std::byte*>(next->first), next->second.bytes);
}

StatusOr<void*> NcclMemory::AllocateBlock(std::size_t bytes) {
  if (!library_->registers()) {
    return devices_->api().Allocate(device_, Bytes(static_cast<std::int64_t>(bytes)));
  }
  AIT_ASSIGN_OR_RETURN(const Device before, devices_->current());
  AIT_RETURN_IF_ERROR(devices_->SetCurrent(device_));
  void* block = nullptr;
  const ncclResult_t result = library_->ncclMemAlloc(&block, bytes);
  AIT_RETURN_IF_ERROR(devices_->SetCurrent(before));
  if (result != ncclSuccess) {
    return ResourceExhaustedError(Message(
        library_->Check(result, nullptr, "ncclMemAlloc of ", bytes, " bytes on device ", device_)));
  }
  return block;
}

StatusOr<void*> NcclMemory::DoAllocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t needed =
      (bytes + kGranule - 1) / kGranule * kGranule + (alignment > kMinAlignment ? alignment : 0);
  std::lock_guard lock(mutex_);
  auto best = blocks_.end();
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    const std::size_t size = block->second.bytes;
    if (block->second.given != nullptr || size < needed || size / 2 > needed) continue;
    if (best == blocks_.end() || size < best->second.bytes) best = block;
  }
  if (best == blocks_.end()) {
    AIT_ASSIGN_OR_RETURN(void* const begin, AllocateBlock(needed));
    best = blocks_.emplace(static_cast<std::byte*>(begin), Block{.bytes = needed}).first;
  }
  best->second.given = AlignUp(best->first, alignment);
  return best->second.given;
}

void NcclMemory::DoDeallocate(void* block, std::size_t, std::size_t) {
  std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(static_cast<const std::byte*>(block));
  if (next != blocks_.begin()) std::prev(next)->second.given = nullptr;
}

}  // namespace ait::inline v0::internal
