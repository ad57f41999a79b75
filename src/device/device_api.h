// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DEVICE_DEVICE_API_H_
#define AIT_DEVICE_DEVICE_API_H_

// The functions of a device run time that ait uses, without its headers. cuda_api.cc fills them
// from libcudart; no_cuda_api.cc is their null twin.
//
// Streams and events are CUDA's own handles. A call that needs a current device sets it and puts
// the old one back.

#include <memory>
#include <string>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/device/runtime.h"

namespace ait::inline v0::internal {

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  virtual StatusOr<int> Count() = 0;
  virtual std::string Description() = 0;
  virtual StatusOr<DeviceInfo> Describe(Device device) = 0;
  virtual StatusOr<Device> Current() = 0;
  virtual Status SetCurrent(Device device) = 0;
  virtual StatusOr<bool> CanAccessPeer(Device from, Device to) = 0;
  virtual StatusOr<MemoryLocation> Locate(const void* address) = 0;

  virtual StatusOr<void*> CreateStream(Device device) = 0;
  virtual void DestroyStream(void* stream) = 0;
  virtual StatusOr<bool> StreamDone(Device device, void* stream) = 0;
  virtual Status WaitForStream(Device device, void* stream) = 0;
  virtual Status StreamWaitsFor(Device device, void* stream, void* event) = 0;
  virtual Status Copy(Device device, void* stream, void* to, const void* from, Bytes bytes) = 0;
  virtual Status Fill(Device device, void* stream, void* to, int value, Bytes bytes) = 0;

  virtual StatusOr<void*> CreateEvent(Device device, bool timing) = 0;
  virtual void DestroyEvent(void* event) = 0;
  virtual Status RecordEvent(Device device, void* stream, void* event) = 0;
  virtual StatusOr<bool> EventDone(void* event) = 0;
  virtual Status WaitForEvent(void* event) = 0;
  virtual StatusOr<float> MillisecondsBetween(void* start, void* end) = 0;

  virtual StatusOr<void*> Allocate(Device device, Bytes bytes) = 0;
  virtual void Free(Device device, void* block) = 0;
  virtual StatusOr<void*> AllocatePinned(Device device, Bytes bytes) = 0;
  virtual void FreePinned(void* block) = 0;
  virtual Status Pin(void* memory, Bytes bytes) = 0;
  virtual Status Unpin(void* memory) = 0;
};

/// Opens the CUDA run time. **Errors.** FailedPrecondition: there is none, or of another version.
StatusOr<std::unique_ptr<DeviceApi>> OpenCuda(const std::string& library);

/// Answers every call with `status`.
std::unique_ptr<DeviceApi> MakeAbsentApi(Status status);

}  // namespace ait::inline v0::internal

#endif  // AIT_DEVICE_DEVICE_API_H_
