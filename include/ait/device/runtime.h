// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DEVICE_RUNTIME_H_
#define AIT_DEVICE_RUNTIME_H_

// The GPUs that this process can use, through the CUDA run time.
//
// The run time is opened when it is asked for (dlopen; the copy that libtorch has loaded, if there
// is one), so a program needs no CUDA to link or to start. Where there is nothing to open, no
// driver or no GPU, or where ait was built without CUDA, a runtime has no devices, says why, and
// every call returns that as an error.
//
//   std::shared_ptr<DeviceRuntime> gpus = DeviceRuntime::Open();
//   if (gpus->count() == 0) Report(gpus->status());        // "no GPU: …"
//   AIT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(gpus, Device(0)));     // stream.h
//
// It holds no kernels and no tensors. Handles are CUDA's own (a `cudaStream_t` is passed as
// `void*`), so they can be shared with libtorch.
//
// **Thread-safety.** All calls may come from any thread. The current device is the thread's; no
// call but `SetCurrent` leaves it changed.
// **Errors.** FailedPrecondition: no device, no driver; InvalidArgument: no such device or address;
// ResourceExhausted: no memory left on the device; Internal: a kernel failed earlier, the process
// cannot use the device any more; DataLoss: memory of the device is damaged.

#include <memory>
#include <string>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

namespace internal {
class DeviceApi;
}

/// Number of a device among those that the process sees (CUDA_VISIBLE_DEVICES counts).
using Device = StrongInt<struct DeviceTag, int>;

struct DeviceInfo {
  std::string name;    // "NVIDIA H200"
  std::string pci_id;  // "0000:1b:00.0", as under /sys/bus/pci/devices
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  Bytes memory;
};

/// Who can dereference an address, and where its bytes lie.
enum class MemoryPlace {
  kHost,     // memory of the host, not known to CUDA
  kPinned,   // memory of the host that the device reads and writes by itself
  kDevice,   // memory of a device
  kManaged,  // moves between both
};

struct MemoryLocation {
  MemoryPlace place = MemoryPlace::kHost;
  Device device;  // of kDevice and kManaged
};

struct DeviceRuntimeOptions {
  /// File of the CUDA run time. Empty: the copy that the process has loaded, else the one beside
  /// libtorch, else the system's.
  std::string library;
};

class DeviceRuntime {
 public:
  /// Never null: without a GPU it is a runtime of no devices.
  static std::shared_ptr<DeviceRuntime> Open(const DeviceRuntimeOptions& options = {});
  ~DeviceRuntime();
  DeviceRuntime(const DeviceRuntime&) = delete;
  DeviceRuntime& operator=(const DeviceRuntime&) = delete;

  int count() const;
  /// ok if there is a device; else FailedPrecondition, and what is missing.
  const Status& status() const;
  /// "CUDA 13.0 (/usr/lib/libcudart.so.13), driver for CUDA 13.0"; for people.
  const std::string& description() const;

  StatusOr<DeviceInfo> Describe(Device device) const;

  /// The current device of this thread.
  StatusOr<Device> current() const;
  Status SetCurrent(Device device);

  /// Whether `from` reads and writes memory of `to` without the host. False for itself.
  StatusOr<bool> CanAccessPeer(Device from, Device to) const;

  /// Where `address` lies. Any address may be asked for.
  StatusOr<MemoryLocation> Locate(const void* address) const;

  /// Locks pages of the host that are there already, so that every device reads and writes them by
  /// itself. Slow: as long as it takes to touch them. **Errors.** InvalidArgument: some of them are
  /// pinned. ResourceExhausted: no more can be locked.
  Status Pin(void* memory, Bytes bytes);
  /// Ends it. `memory` is what was given to Pin; before its bytes are freed.
  Status Unpin(void* memory);

  /// The functions behind; for the classes of this component and for transports.
  internal::DeviceApi& api() const { return *api_; }

 private:
  explicit DeviceRuntime(std::unique_ptr<internal::DeviceApi> api);
  Status CheckDevice(Device device) const;

  std::unique_ptr<internal::DeviceApi> api_;
  int count_ = 0;
  Status status_;
  std::string description_;
};

}  // namespace ait::inline v0

#endif  // AIT_DEVICE_RUNTIME_H_
