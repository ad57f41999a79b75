// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DEVICE_BUFFER_H_
#define AIT_DEVICE_BUFFER_H_

// Bytes of a device, or host memory pinned for it, that give themselves back.
//
//   AIT_ASSIGN_OR_RETURN(DeviceBuffer values, DeviceBuffer::Create(gpus, Device(0), MiB(1)));
//   AIT_ASSIGN_OR_RETURN(DeviceBuffer staged,
//                        DeviceBuffer::Create(gpus, Device(0), MiB(1), MemoryPlace::kPinned));
//   AIT_RETURN_IF_ERROR(stream.Copy(values.data(), staged.data(), MiB(1)));
//
// Allocation and release are slow (they may wait for the device): allocate once. What a tensor
// lives in is libtorch's own business. **Thread-safety.** As of an int.

#include <memory>
#include <utility>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/device/runtime.h"

namespace ait::inline v0 {

class DeviceBuffer {
 public:
  /// No bytes.
  DeviceBuffer() = default;

  /// Contents are unspecified; zero bytes are allowed. `place` is kDevice or kPinned.
  static StatusOr<DeviceBuffer> Create(std::shared_ptr<DeviceRuntime> runtime, Device device,
                                       Bytes bytes, MemoryPlace place = MemoryPlace::kDevice);

  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  /// nullptr if it has no bytes. The host may dereference it only if the place is kPinned.
  void* data() const { return data_; }
  Bytes size() const { return bytes_; }
  MemoryPlace place() const { return place_; }

 private:
  std::shared_ptr<DeviceRuntime> runtime_;
  Device device_;
  Bytes bytes_;
  MemoryPlace place_ = MemoryPlace::kDevice;
  void* data_ = nullptr;
};

}  // namespace ait::inline v0

#endif  // AIT_DEVICE_BUFFER_H_
