// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_DEVICE_MEMORY_H_
#define AIT_TENSOR_DEVICE_MEMORY_H_

// What libtorch's own allocator for GPU memory holds. ait leaves that allocator in place and looks
// at it: no memory is taken or moved, and no CUDA is needed to build or to link.
//
//   if (auto memory = ObserveDeviceMemory(Device(0)); memory.ok()) {
//     Print(memory->allocated_peak_bytes, memory->reserved_bytes - memory->allocated_bytes);
//   }
//
// **Thread-safety.** Any thread, at any time.

#include <cstdint>

#include "ait/base/status.h"
#include "ait/device/runtime.h"

namespace ait::inline v0 {

/// Since the start of the process, or since somebody reset libtorch's peaks.
struct DeviceMemoryStatistics {
  std::int64_t allocated_bytes = 0;       ///< in tensors, as libtorch rounds them
  std::int64_t allocated_peak_bytes = 0;  ///< the most of it
  std::int64_t reserved_bytes = 0;        ///< taken from the device, in use or free
  std::int64_t reserved_peak_bytes = 0;   ///< the most of it
  std::int64_t gap_bytes = 0;            ///< free, between blocks in use: they cannot be given back
  std::int64_t retry_count = 0;          ///< allocations that had to empty the cache first
  std::int64_t out_of_memory_count = 0;  ///< allocations that failed after that
};

/// **Errors.** FailedPrecondition: libtorch's CUDA part is not in this process, or has not been used
/// yet. InvalidArgument: there is no such device.
StatusOr<DeviceMemoryStatistics> ObserveDeviceMemory(Device device);

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_DEVICE_MEMORY_H_
