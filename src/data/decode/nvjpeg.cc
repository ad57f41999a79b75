// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/nvjpeg.h"

#include <utility>

#include "data/decode/nvjpeg_internal.h"
#include "device/dynamic_library.h"

namespace ait::inline v0 {
namespace {

using internal::DynamicLibrary;

StatusOr<DynamicLibrary> OpenLibrary(const std::string& file) {
  const char* beside = "../../nvidia/cu13/lib/libnvjpeg.so.13";
  StatusOr<DynamicLibrary> newest = DynamicLibrary::Open(file, "libnvjpeg.so.13", {beside});
  if (newest.ok() || !file.empty()) return newest;
  beside = "../../nvidia/nvjpeg/lib/libnvjpeg.so.12";
  StatusOr<DynamicLibrary> older = DynamicLibrary::Open(file, "libnvjpeg.so.12", {beside});
  return older.ok() ? std::move(older) : std::move(newest);
}

Status Failure(int code, std::string_view what) {
  switch (code) {
    case internal::kNvJpegOk:
      return OkStatus();
    case internal::kNvJpegBadJpeg:
      return DataLossError("the JPEG is damaged: nvJPEG cannot ", what, " it");
    case internal::kNvJpegNotSupported:
      return InvalidArgumentError("the JPEG is of a kind that nvJPEG does not decode");
    case internal::kNvJpegAllocatorFailure:
      return ResourceExhaustedError("nvJPEG has no memory to ", what, " a JPEG");
    case internal::kNvJpegNotInitialized:
    case internal::kNvJpegArchMismatch:
    case internal::kNvJpegImplementationNotSupported:
      return FailedPreconditionError("nvJPEG cannot ", what, " on this GPU: its status is ", code);
    default:
      return InternalError("nvJPEG cannot ", what, " a JPEG: its status is ", code);
  }
}

bool HasEnd(std::span<const std::byte> file) {
  for (std::size_t i = file.size(); i >= 2; --i) {
    if (file[i - 2] == std::byte{0xFF} && file[i - 1] == std::byte{0xD9}) return true;
  }
  return false;
}

/// Makes a device the current one of this thread, and the old one again at the end.
class CurrentDevice {
 public:
  static StatusOr<CurrentDevice> Set(DeviceRuntime& runtime, Device device) {
    AIT_ASSIGN_OR_RETURN(const Device before, runtime.current());
    AIT_RETURN_IF_ERROR(runtime.SetCurrent(device));
    return CurrentDevice(runtime, before);
  }
  CurrentDevice(CurrentDevice&& other) noexcept
      : runtime_(std::exchange(other.runtime_, nullptr)), before_(other.before_) {}
  ~CurrentDevice() {
    if (runtime_ != nullptr) runtime_->SetCurrent(before_).IgnoreError();
  }

 private:
  CurrentDevice(DeviceRuntime& runtime, Device before) : runtime_(&runtime), before_(before) {}

  DeviceRuntime* runtime_;
  Device before_;
};

}  // namespace

struct NvJpeg::Impl {
  Impl(DynamicLibrary opened, std::shared_ptr<DeviceRuntime> gpus, Device on,
       const ImageLimits& most)
      : library(std::move(opened)), runtime(std::move(gpus)), device(on), limits(most) {}
  Impl(const Impl&) = delete;
  ~Impl() {
    if (handle == nullptr) return;
    const StatusOr<CurrentDevice> current = CurrentDevice::Set(*runtime, device);
    if (state != nullptr) functions.nvjpegJpegStateDestroy(state);
    functions.nvjpegDestroy(handle);
  }

  Status FindFunctions() {
    std::string_view missing;
#define X(name)                                                                     \
  functions.name = reinterpret_cast<decltype(functions.name)>(library.Find(#name)); \
  if (functions.name == nullptr) missing = #name;
    AIT_NVJPEG_FUNCTIONS(X)
#undef X
    if (missing.empty()) return OkStatus();
    return FailedPreconditionError("no nvJPEG: ", library.path(), " has no function ", missing,
                                   "; give NvJpegOptions::library the path of libnvjpeg.so.13");
  }

  Status Start() {
    int major = 0, minor = 0;
    functions.nvjpegGetProperty(0, &major);
    functions.nvjpegGetProperty(1, &minor);
    description = StrCat("nvJPEG ", major, ".", minor, " (", library.path(), ")");
    AIT_ASSIGN_OR_RETURN(const CurrentDevice current, CurrentDevice::Set(*runtime, device));
    AIT_RETURN_IF_ERROR(Failure(functions.nvjpegCreateSimple(&handle), "start"));
    return Failure(functions.nvjpegJpegStateCreate(handle, &state), "start");
  }

  DynamicLibrary library;
  std::shared_ptr<DeviceRuntime> runtime;
  Device device;
  ImageLimits limits;
  internal::NvJpegFunctions functions;
  std::string description;
  void* handle = nullptr;
  void* state = nullptr;
};

NvJpeg::NvJpeg(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NvJpeg::~NvJpeg() = default;

StatusOr<std::unique_ptr<NvJpeg>> NvJpeg::Open(std::shared_ptr<DeviceRuntime> runtime,
                                               Device device, const NvJpegOptions& options) {
  if (!runtime->status().ok()) return Annotate(runtime->status(), "no nvJPEG");
  StatusOr<DynamicLibrary> library = OpenLibrary(options.library);
  if (!library.ok()) return Annotate(library.status(), "no nvJPEG");
  auto impl =
      std::make_unique<Impl>(*std::move(library), std::move(runtime), device, options.limits);
  AIT_RETURN_IF_ERROR(impl->FindFunctions());
  AIT_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<NvJpeg>(new NvJpeg(std::move(impl)));
}

const std::string& NvJpeg::description() const { return impl_->description; }

StatusOr<JpegHeader> NvJpeg::ReadHeader(std::span<const std::byte> file) const {
  JpegHeader header;
  int subsampling = 0;
  int widths[internal::kNvJpegComponents] = {};
  int heights[internal::kNvJpegComponents] = {};
  AIT_RETURN_IF_ERROR(
      Failure(impl_->functions.nvjpegGetImageInfo(
                  impl_->handle, reinterpret_cast<const unsigned char*>(file.data()), file.size(),
                  &header.components, &subsampling, widths, heights),
              "read the header of"));
  header.width = widths[0];
  header.height = heights[0];
  return header;
}

Status NvJpeg::Decode(std::span<const std::byte> file, ColorMode mode, void* to, Bytes size,
                      const Stream& stream) {
  if (mode != ColorMode::kGray && mode != ColorMode::kRgb) {
    return InvalidArgumentError("nvJPEG decodes to gray or RGB, not to mode ",
                                static_cast<int>(mode));
  }
  AIT_ASSIGN_OR_RETURN(const JpegHeader header, ReadHeader(file));
  AIT_RETURN_IF_ERROR(CheckImageSize(header.height, header.width, impl_->limits));
  const int channels = static_cast<int>(mode);
  const std::int64_t needed = std::int64_t{header.height} * header.width * channels;
  if (size.value() < needed) {
    return InvalidArgumentError("the image of ", header.height, " x ", header.width, " x ",
                                channels, " needs ", needed, " bytes; there are ", size);
  }
  // nvJPEG fills up what is missing of a file and does not say so.
  if (!HasEnd(file)) return DataLossError("the JPEG is damaged: it is cut off");
  AIT_ASSIGN_OR_RETURN(const CurrentDevice current,
                       CurrentDevice::Set(*impl_->runtime, impl_->device));
  internal::NvJpegImage image = {};
  image.channel[0] = static_cast<unsigned char*>(to);
  image.pitch[0] = static_cast<std::size_t>(header.width) * static_cast<std::size_t>(channels);
  const int format =
      mode == ColorMode::kGray ? internal::kNvJpegOutputY : internal::kNvJpegOutputRgbInterleaved;
  return Failure(impl_->functions.nvjpegDecode(impl_->handle, impl_->state,
                                               reinterpret_cast<const unsigned char*>(file.data()),
                                               file.size(), format, &image, stream.native()),
                 "decode");
}

}  // namespace ait::inline v0
