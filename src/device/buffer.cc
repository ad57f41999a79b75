// SPDX-License-Identifier: Apache-2.0
#include "ait/device/buffer.h"

#include "device/device_api.h"

namespace ait::inline v0 {

StatusOr<DeviceBuffer> DeviceBuffer::Create(std::shared_ptr<DeviceRuntime> runtime, Device device,
                                            Bytes bytes, MemoryPlace place) {
  AIT_RETURN_IF_ERROR(runtime->status());
  if (bytes.value() < 0) {
    return InvalidArgumentError("a device buffer of ", bytes, " bytes; give 0 or more");
  }
  if (place != MemoryPlace::kDevice && place != MemoryPlace::kPinned) {
    return InvalidArgumentError(
        "a device buffer lies in device or pinned memory; for other "
        "memory of the host see ait/memory/buffer.h");
  }
  DeviceBuffer buffer;
  buffer.device_ = device;
  buffer.bytes_ = bytes;
  buffer.place_ = place;
  if (bytes != Bytes(0)) {
    AIT_ASSIGN_OR_RETURN(buffer.data_, place == MemoryPlace::kDevice
                                           ? runtime->api().Allocate(device, bytes)
                                           : runtime->api().AllocatePinned(device, bytes));
  }
  buffer.runtime_ = std::move(runtime);
  return buffer;
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  std::swap(runtime_, other.runtime_);
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(place_, other.place_);
  std::swap(data_, other.data_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  if (place_ == MemoryPlace::kDevice) {
    runtime_->api().Free(device_, data_);
  } else {
    runtime_->api().FreePinned(data_);
  }
}

}  // namespace ait::inline v0
