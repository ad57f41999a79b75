// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_MEMORY_H_
#define AIT_COMM_NCCL_MEMORY_H_

// Device memory that NCCL can register: what `Communicator::memory()` gives.
//
// Blocks that are given back are kept for the next allocation and freed with the resource: a
// registration lasts as long as its communicator, and cudaFree waits for the device.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ait/base/status.h"
#include "ait/device/runtime.h"
#include "ait/memory/resource.h"
#include "comm/nccl_library.h"

namespace ait::inline v0::internal {

class NcclMemory final : public MemoryResource {
 public:
  NcclMemory(std::shared_ptr<NcclLibrary> library, std::shared_ptr<DeviceRuntime> devices,
             Device device);
  ~NcclMemory() override;

  MemoryProperties properties() const override;

  /// The allocation that holds `address`: its begin and size; nothing if it is not of this resource.
  std::optional<std::pair<void*, std::size_t>> Find(const void* address) const;

 protected:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

 private:
  struct Block {
    std::size_t bytes = 0;
    void* given = nullptr;  // what the user has, inside; null if nobody does
  };
  StatusOr<void*> AllocateBlock(std::size_t bytes);

  const std::shared_ptr<NcclLibrary> library_;
  const std::shared_ptr<DeviceRuntime> devices_;
  const Device device_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // by begin
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_MEMORY_H_
