// SPDX-License-Identifier: Apache-2.0
#include "ait/device/runtime.h"

#include <utility>

#include "device/device_api.h"

namespace ait::inline v0 {

DeviceRuntime::DeviceRuntime(std::unique_ptr<internal::DeviceApi> api) : api_(std::move(api)) {
  description_ = api_->Description();
  const StatusOr<int> count = api_->Count();
  if (count.ok()) {
    count_ = *count;
  } else {
    status_ = count.status();
  }
}

DeviceRuntime::~DeviceRuntime() = default;

std::shared_ptr<DeviceRuntime> DeviceRuntime::Open(const DeviceRuntimeOptions& options) {
  StatusOr<std::unique_ptr<internal::DeviceApi>> api = internal::OpenCuda(options.library);
  return std::shared_ptr<DeviceRuntime>(
      new DeviceRuntime(api.ok() ? *std::move(api) : internal::MakeAbsentApi(api.status())));
}

int DeviceRuntime::count() const { return count_; }
const Status& DeviceRuntime::status() const { return status_; }
const std::string& DeviceRuntime::description() const { return description_; }

Status DeviceRuntime::CheckDevice(Device device) const {
  AIT_RETURN_IF_ERROR(status_);
  if (device.value() >= 0 && device.value() < count_) return OkStatus();
  return InvalidArgumentError("device ", device, " is none of the ", count_,
                              " that this process sees; allowed are 0 to ", count_ - 1);
}

StatusOr<DeviceInfo> DeviceRuntime::Describe(Device device) const {
  AIT_RETURN_IF_ERROR(CheckDevice(device));
  return api_->Describe(device);
}

StatusOr<Device> DeviceRuntime::current() const {
  AIT_RETURN_IF_ERROR(status_);
  return api_->Current();
}

Status DeviceRuntime::SetCurrent(Device device) {
  AIT_RETURN_IF_ERROR(CheckDevice(device));
  return api_->SetCurrent(device);
}

StatusOr<bool> DeviceRuntime::CanAccessPeer(Device from, Device to) const {
  AIT_RETURN_IF_ERROR(CheckDevice(from));
  AIT_RETURN_IF_ERROR(CheckDevice(to));
  if (from == to) return false;
  return api_->CanAccessPeer(from, to);
}

StatusOr<MemoryLocation> DeviceRuntime::Locate(const void* address) const {
  AIT_RETURN_IF_ERROR(status_);
  return api_->Locate(address);
}

Status DeviceRuntime::Pin(void* memory, Bytes bytes) {
  AIT_RETURN_IF_ERROR(status_);
  if (memory == nullptr || bytes < Bytes(1)) {
    return InvalidArgumentError("cannot pin ", bytes, " bytes; give memory of 1 byte or more");
  }
  return api_->Pin(memory, bytes);
}

Status DeviceRuntime::Unpin(void* memory) {
  AIT_RETURN_IF_ERROR(status_);
  return api_->Unpin(memory);
}

}  // namespace ait::inline v0
