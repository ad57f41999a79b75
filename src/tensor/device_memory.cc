// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "tensor/catch.h"

namespace ait::inline v0 {

StatusOr<DeviceMemoryStatistics> ObserveDeviceMemory(Device device) {
  if (device < Device(0) || device > Device(INT8_MAX)) {
    return InvalidArgumentError("cannot observe the memory of device ", device, "; 0 to ", INT8_MAX,
                                " are possible");
  }
  return internal::CatchAsStatus([&]() -> StatusOr<DeviceMemoryStatistics> {
    // Found in the table of allocators, into which libtorch_cuda puts its own when it is loaded.
    auto* const allocator =
        dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::DeviceType::CUDA));
    if (allocator == nullptr) {
      return FailedPreconditionError("cannot observe the memory of device ", device,
                                     ": libtorch's CUDA part is not in this process; link "
                                     "torch_cuda");
    }
    if (!allocator->initialized()) {
      return FailedPreconditionError("cannot observe the memory of device ", device,
                                     ": libtorch has not used CUDA yet");
    }
    const c10::CachingDeviceAllocator::DeviceStats stats =
        allocator->getDeviceStats(static_cast<c10::DeviceIndex>(device.value()));
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return DeviceMemoryStatistics{.allocated_bytes = stats.allocated_bytes[kAll].current,
                                  .allocated_peak_bytes = stats.allocated_bytes[kAll].peak,
                                  .reserved_bytes = stats.reserved_bytes[kAll].current,
                                  .reserved_peak_bytes = stats.reserved_bytes[kAll].peak,
                                  .gap_bytes = stats.inactive_split_bytes[kAll].current,
                                  .retry_count = stats.num_alloc_retries,
                                  .out_of_memory_count = stats.num_ooms};
  });
}

}  // namespace ait::inline v0
