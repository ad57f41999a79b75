// SPDX-License-Identifier: Apache-2.0
// A run time that is not there: it has no devices, and every call returns why.
#include <utility>

#include "device/device_api.h"

namespace ait::inline v0::internal {
namespace {

class AbsentApi final : public DeviceApi {
 public:
  explicit AbsentApi(Status status) : status_(std::move(status)) {}

  StatusOr<int> Count() override { return status_; }
  std::string Description() override { return Message(status_); }
  StatusOr<DeviceInfo> Describe(Device) override { return status_; }
  StatusOr<Device> Current() override { return status_; }
  Status SetCurrent(Device) override { return status_; }
  StatusOr<bool> CanAccessPeer(Device, Device) override { return status_; }
  StatusOr<MemoryLocation> Locate(const void*) override { return status_; }
  StatusOr<void*> CreateStream(Device) override { return status_; }
  void DestroyStream(void*) override {}
  StatusOr<bool> StreamDone(Device, void*) override { return status_; }
  Status WaitForStream(Device, void*) override { return status_; }
  Status StreamWaitsFor(Device, void*, void*) override { return status_; }
  Status Copy(Device, void*, void*, const void*, Bytes) override { return status_; }
  Status Fill(Device, void*, void*, int, Bytes) override { return status_; }
  StatusOr<void*> CreateEvent(Device, bool) override { return status_; }
  void DestroyEvent(void*) override {}
  Status RecordEvent(Device, void*, void*) override { return status_; }
  StatusOr<bool> EventDone(void*) override { return status_; }
  Status WaitForEvent(void*) override { return status_; }
  StatusOr<float> MillisecondsBetween(void*, void*) override { return status_; }
  StatusOr<void*> Allocate(Device, Bytes) override { return status_; }
  void Free(Device, void*) override {}
  StatusOr<void*> AllocatePinned(Device, Bytes) override { return status_; }
  void FreePinned(void*) override {}
  Status Pin(void*, Bytes) override { return status_; }
  Status Unpin(void*) override { return status_; }

 private:
  const Status status_;
};

}  // namespace

std::unique_ptr<DeviceApi> MakeAbsentApi(Status status) {
  return std::make_unique<AbsentApi>(std::move(status));
}

}  // namespace ait::inline v0::internal
