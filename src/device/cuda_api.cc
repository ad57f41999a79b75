// SPDX-License-Identifier: Apache-2.0
// The functions of libcudart, found at run time. no_cuda_api.cc is the null twin.
#include <cuda_runtime_api.h>

#include <utility>

#include "device/device_api.h"
#include "device/dynamic_library.h"

// The name of a function as its library exports it: CUDA's headers rename some by macros.
#define AIT_NAME_OF_(function) #function
#define AIT_NAME_OF(function) AIT_NAME_OF_(function)

#define AIT_CUDA_FUNCTIONS(X)  \
  X(cudaDeviceCanAccessPeer)   \
  X(cudaDeviceGetPCIBusId)     \
  X(cudaDriverGetVersion)      \
  X(cudaEventCreateWithFlags)  \
  X(cudaEventDestroy)          \
  X(cudaEventElapsedTime)      \
  X(cudaEventQuery)            \
  X(cudaEventRecord)           \
  X(cudaEventSynchronize)      \
  X(cudaFree)                  \
  X(cudaFreeHost)              \
  X(cudaGetDevice)             \
  X(cudaGetDeviceCount)        \
  X(cudaGetDeviceProperties)   \
  X(cudaGetErrorName)          \
  X(cudaGetErrorString)        \
  X(cudaGetLastError)          \
  X(cudaHostRegister)          \
  X(cudaHostUnregister)        \
  X(cudaMalloc)                \
  X(cudaMallocHost)            \
  X(cudaMemcpyAsync)           \
  X(cudaMemsetAsync)           \
  X(cudaPointerGetAttributes)  \
  X(cudaRuntimeGetVersion)     \
  X(cudaSetDevice)             \
  X(cudaStreamCreateWithFlags) \
  X(cudaStreamDestroy)         \
  X(cudaStreamQuery)           \
  X(cudaStreamSynchronize)     \
  X(cudaStreamWaitEvent)

namespace ait::inline v0::internal {
namespace {

struct Functions {
#define X(function) decltype(&::function) function;
  AIT_CUDA_FUNCTIONS(X)
#undef X
};

constexpr int kMajor = CUDART_VERSION / 1000;

std::string VersionText(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
      return StatusCode::kInvalidArgument;
    case cudaErrorMemoryAllocation:
      return StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorCudartUnloading:
      return StatusCode::kFailedPrecondition;
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorNotSupported:
      return StatusCode::kUnimplemented;
    case cudaErrorECCUncorrectable:
      return StatusCode::kDataLoss;
    default:
      return StatusCode::kInternal;
  }
}

class CudaApi final : public DeviceApi {
 public:
  CudaApi(DynamicLibrary library, const Functions& functions)
      : library_(std::move(library)), cuda_(functions) {}

  StatusOr<int> Count() override {
    int count = 0;
    const cudaError_t error = cuda_.cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return count;
    return FailedPreconditionError("no GPU: ", error == cudaSuccess ? "there is none" : Text(error),
                                   ", seen by ", library_.path(),
                                   "; check `nvidia-smi` and CUDA_VISIBLE_DEVICES");
  }

  std::string Description() override {
    int version = 0;
    int driver = 0;
    static_cast<void>(Ok(cuda_.cudaRuntimeGetVersion(&version)));
    static_cast<void>(Ok(cuda_.cudaDriverGetVersion(&driver)));
    return StrCat("CUDA ", VersionText(version), " (", library_.path(), "), ",
                  driver == 0 ? "no driver" : StrCat("driver for CUDA ", VersionText(driver)));
  }

  StatusOr<DeviceInfo> Describe(Device device) override {
    cudaDeviceProp properties;
    char pci_id[32] = "";
    AIT_RETURN_IF_ERROR(Check(cuda_.cudaGetDeviceProperties(&properties, device.value()),
                              "cudaGetDeviceProperties of device ", device));
    AIT_RETURN_IF_ERROR(Check(cuda_.cudaDeviceGetPCIBusId(pci_id, sizeof(pci_id), device.value()),
                              "cudaDeviceGetPCIBusId of device ", device));
    return DeviceInfo{.name = properties.name,
                      .pci_id = pci_id,
                      .compute_major = properties.major,
                      .compute_minor = properties.minor,
                      .multiprocessors = properties.multiProcessorCount,
                      .memory = Bytes(static_cast<std::int64_t>(properties.totalGlobalMem))};
  }

  StatusOr<Device> Current() override {
    int device = 0;
    AIT_RETURN_IF_ERROR(Check(cuda_.cudaGetDevice(&device), "cudaGetDevice"));
    return Device(device);
  }

  Status SetCurrent(Device device) override {
    return Check(cuda_.cudaSetDevice(device.value()), "cudaSetDevice(", device, ")");
  }

  StatusOr<bool> CanAccessPeer(Device from, Device to) override {
    int can = 0;
    AIT_RETURN_IF_ERROR(Check(cuda_.cudaDeviceCanAccessPeer(&can, from.value(), to.value()),
                              "cudaDeviceCanAccessPeer from device ", from, " to device ", to));
    return can != 0;
  }

  StatusOr<MemoryLocation> Locate(const void* address) override {
    cudaPointerAttributes attributes = {};
    AIT_RETURN_IF_ERROR(
        Check(cuda_.cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes"));
    switch (attributes.type) {
      case cudaMemoryTypeHost:
        return MemoryLocation{.place = MemoryPlace::kPinned};
      case cudaMemoryTypeDevice:
        return MemoryLocation{.place = MemoryPlace::kDevice, .device = Device(attributes.device)};
      case cudaMemoryTypeManaged:
        return MemoryLocation{.place = MemoryPlace::kManaged, .device = Device(attributes.device)};
      default:
        return MemoryLocation{};
    }
  }

  StatusOr<void*> CreateStream(Device device) override {
    const Guard guard(*this, device);
    AIT_RETURN_IF_ERROR(guard.status());
    cudaStream_t stream = nullptr;
    AIT_RETURN_IF_ERROR(Check(cuda_.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                              "cudaStreamCreateWithFlags on device ", device));
    return static_cast<void*>(stream);
  }
  void DestroyStream(void* stream) override {
    static_cast<void>(Ok(cuda_.cudaStreamDestroy(AsStream(stream))));
  }
  StatusOr<bool> StreamDone(Device device, void* stream) override {
    const Guard guard(*this, device, stream);
    AIT_RETURN_IF_ERROR(guard.status());
    return DoneOr(cuda_.cudaStreamQuery(AsStream(stream)), "cudaStreamQuery");
  }
  Status WaitForStream(Device device, void* stream) override {
    const Guard guard(*this, device, stream);
    AIT_RETURN_IF_ERROR(guard.status());
    return Check(cuda_.cudaStreamSynchronize(AsStream(stream)), "cudaStreamSynchronize on device ",
                 device);
  }
  Status StreamWaitsFor(Device device, void* stream, void* event) override {
    const Guard guard(*this, device, stream);
    AIT_RETURN_IF_ERROR(guard.status());
    return Check(cuda_.cudaStreamWaitEvent(AsStream(stream), AsEvent(event), 0),
                 "cudaStreamWaitEvent on device ", device);
  }
  Status Copy(Device device, void* stream, void* to, const void* from, Bytes bytes) override {
    const Guard guard(*this, device, stream);
    AIT_RETURN_IF_ERROR(guard.status());
    return Check(cuda_.cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes.value()),
                                       cudaMemcpyDefault, AsStream(stream)),
                 "cudaMemcpyAsync of ", bytes, " bytes on device ", device);
  }
  Status Fill(Device device, void* stream, void* to, int value, Bytes bytes) override {
    const Guard guard(*this, device, stream);
    AIT_RETURN_IF_ERROR(guard.status());
    return Check(
        cuda_.cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes.value()), AsStream(stream)),
        "cudaMemsetAsync of ", bytes, " bytes on device ", device);
  }

  StatusOr<void*> CreateEvent(Device device, bool timing) override {
    const Guard guard(*this, device);
    AIT_RETURN_IF_ERROR(guard.status());
    cudaEvent_t event = nullptr;
    AIT_RETURN_IF_ERROR(Check(
        cuda_.cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags on device ", device));
    return static_cast<void*>(event);
  }
  void DestroyEvent(void* event) override {
    static_cast<void>(Ok(cuda_.cudaEventDestroy(AsEvent(event))));
  }
  Status RecordEvent(Device device, void* stream, void* event) override {
    const Guard guard(*this, device, stream);
    AIT_RETURN_IF_ERROR(guard.status());
    return Check(cuda_.cudaEventRecord(AsEvent(event), AsStream(stream)),
                 "cudaEventRecord on device ", device);
  }
  StatusOr<bool> EventDone(void* event) override {
    return DoneOr(cuda_.cudaEventQuery(AsEvent(event)), "cudaEventQuery");
  }
  Status WaitForEvent(void* event) override {
    return Check(cuda_.cudaEventSynchronize(AsEvent(event)), "cudaEventSynchronize");
  }
  StatusOr<float> MillisecondsBetween(void* start, void* end) override {
    float milliseconds = 0;
    AIT_RETURN_IF_ERROR(
        Check(cuda_.cudaEventElapsedTime(&milliseconds, AsEvent(start), AsEvent(end)),
              "cudaEventElapsedTime"));
    return milliseconds;
  }

  StatusOr<void*> Allocate(Device device, Bytes bytes) override {
    const Guard guard(*this, device);
    AIT_RETURN_IF_ERROR(guard.status());
    void* block = nullptr;
    AIT_RETURN_IF_ERROR(Check(cuda_.cudaMalloc(&block, static_cast<std::size_t>(bytes.value())),
                              "cudaMalloc of ", bytes, " bytes on device ", device));
    return block;
  }
  void Free(Device device, void* block) override {
    const Guard guard(*this, device);
    static_cast<void>(Ok(cuda_.cudaFree(block)));
  }
  StatusOr<void*> AllocatePinned(Device device, Bytes bytes) override {
    const Guard guard(*this, device);
    AIT_RETURN_IF_ERROR(guard.status());
    void* block = nullptr;
    AIT_RETURN_IF_ERROR(Check(cuda_.cudaMallocHost(&block, static_cast<std::size_t>(bytes.value())),
                              "cudaMallocHost of ", bytes, " bytes"));
    return block;
  }
  void FreePinned(void* block) override { static_cast<void>(Ok(cuda_.cudaFreeHost(block))); }
  Status Pin(void* memory, Bytes bytes) override {
    return Check(cuda_.cudaHostRegister(memory, static_cast<std::size_t>(bytes.value()),
                                        cudaHostRegisterPortable),
                 "cudaHostRegister of ", bytes, " bytes");
  }
  Status Unpin(void* memory) override {
    return Check(cuda_.cudaHostUnregister(memory), "cudaHostUnregister");
  }

 private:
  /// Makes a device current while it lives; for the default stream and for what has none.
  class Guard {
   public:
    Guard(CudaApi& api, Device device, void* stream = nullptr) : api_(api) {
      if (stream != nullptr) return;  // it knows its device
      status_ = api_.Check(api_.cuda_.cudaGetDevice(&before_), "cudaGetDevice");
      if (!status_.ok() || before_ == device.value()) return;
      status_ = api_.SetCurrent(device);
      changed_ = status_.ok();
    }
    ~Guard() {
      if (changed_) static_cast<void>(api_.Ok(api_.cuda_.cudaSetDevice(before_)));
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    const Status& status() const { return status_; }

   private:
    CudaApi& api_;
    Status status_;
    int before_ = 0;
    bool changed_ = false;
  };

  static cudaStream_t AsStream(void* stream) { return static_cast<cudaStream_t>(stream); }
  static cudaEvent_t AsEvent(void* event) { return static_cast<cudaEvent_t>(event); }

  std::string Text(cudaError_t error) const {
    return StrCat(cuda_.cudaGetErrorName(error), " (", cuda_.cudaGetErrorString(error), ")");
  }

  /// Takes the error out of CUDA's own memory of it, so that nobody else of this thread finds it.
  bool Ok(cudaError_t error) const {
    if (error == cudaSuccess) return true;
    static_cast<void>(cuda_.cudaGetLastError());
    return false;
  }

  template <typename... What>
  Status Check(cudaError_t error, const What&... what) const {
    if (Ok(error)) return OkStatus();
    return Status(CodeOf(error), StrCat(what..., ": ", Text(error)));
  }

  StatusOr<bool> DoneOr(cudaError_t error, std::string_view what) const {
    if (error == cudaSuccess) return true;
    const Status status = Check(error, what);
    if (error == cudaErrorNotReady) return false;
    return status;
  }

  const DynamicLibrary library_;
  const Functions cuda_;
};

}  // namespace

StatusOr<std::unique_ptr<DeviceApi>> OpenCuda(const std::string& library) {
  const std::string soname = StrCat("libcudart.so.", kMajor);
  StatusOr<DynamicLibrary> opened =
      DynamicLibrary::Open(library, soname,
                           {StrCat("../../nvidia/cu", kMajor, "/lib/", soname),
                            StrCat("../../nvidia/cuda_runtime/lib/", soname)});
  if (!opened.ok()) return Annotate(opened.status(), "no GPU");
  Functions functions = {};
#define X(function)                                                                        \
  functions.function =                                                                     \
      reinterpret_cast<decltype(functions.function)>(opened->Find(AIT_NAME_OF(function))); \
  if (functions.function == nullptr) {                                                     \
    return FailedPreconditionError("no GPU: ", opened->path(), " has no function ",        \
                                   AIT_NAME_OF(function), "; it is not CUDA ", kMajor);    \
  }
  AIT_CUDA_FUNCTIONS(X)
#undef X
  int version = 0;
  if (functions.cudaRuntimeGetVersion(&version) != cudaSuccess || version / 1000 != kMajor) {
    return FailedPreconditionError("no GPU: ", opened->path(), " is CUDA ", VersionText(version),
                                   ", and ait was built for CUDA ", VersionText(CUDART_VERSION));
  }
  return std::make_unique<CudaApi>(*std::move(opened), functions);
}

}  // namespace ait::inline v0::internal
