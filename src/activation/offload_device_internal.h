// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_OFFLOAD_DEVICE_INTERNAL_H_
#define AIT_ACTIVATION_OFFLOAD_DEVICE_INTERNAL_H_

// Copies between a GPU and the host on a stream beside the one that computes. Torch-free.
//
//   AIT_ASSIGN_OR_RETURN(Event copied, copier->Start(block, tensor, bytes, compute));
//   AIT_RETURN_IF_ERROR(copier->Await(copied, compute));       // or copied.Wait(), on the host

#include <cstdint>
#include <memory>
#include <utility>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/device/runtime.h"
#include "ait/device/stream.h"

namespace ait::inline v0::internal {

/// Streams are CUDA's. **Thread-safety.** As of an int.
class DeviceCopier {
 public:
  static StatusOr<std::unique_ptr<DeviceCopier>> Create(std::shared_ptr<DeviceRuntime> runtime,
                                                        Device device);

  /// Starts a copy behind what `compute` has been given so far: the bytes to read are written
  /// then, and those to write are no longer used.
  StatusOr<Event> Start(void* to, const void* from, Bytes bytes, void* compute);
  /// What `compute` is given later starts after the copy.
  Status Await(const Event& copied, void* compute);

 private:
  DeviceCopier(std::shared_ptr<DeviceRuntime> runtime, Device device, Stream side)
      : runtime_(std::move(runtime)), device_(device), side_(std::move(side)) {}

  const std::shared_ptr<DeviceRuntime> runtime_;
  const Device device_;
  Stream side_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_OFFLOAD_DEVICE_INTERNAL_H_
