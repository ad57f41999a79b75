// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_NVJPEG_H_
#define AIT_DATA_DECODE_NVJPEG_H_

// JPEG files decoded by a GPU, into its memory: where cores of the host are short.
//
// nvJPEG is opened when it is asked for (dlopen), so that a program needs none to link or to start.
// Pixels differ from libjpeg's by a level or two; regions and scales are not offered.
//
//   AIT_ASSIGN_OR_RETURN(auto decoder, NvJpeg::Open(gpus, Device(0)));
//   AIT_ASSIGN_OR_RETURN(JpegHeader header, decoder->ReadHeader(file));
//   AIT_RETURN_IF_ERROR(decoder->Decode(file, ColorMode::kRgb, pixels, Bytes(size), stream));
//
// **Thread-safety.** One thread at a time; open one for each.

#include <memory>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/data/decode/image.h"
#include "ait/data/decode/jpeg.h"
#include "ait/device/runtime.h"
#include "ait/device/stream.h"

namespace ait::inline v0 {

struct NvJpegOptions {
  /// File of the library. Empty: the copy that the process has loaded, else the system's
  /// libnvjpeg.so.13 or libnvjpeg.so.12.
  std::string library = {};
  ImageLimits limits = {};
};

class NvJpeg {
 public:
  /// **Errors.** FailedPrecondition that says what is missing: a GPU, the library or a function.
  static StatusOr<std::unique_ptr<NvJpeg>> Open(std::shared_ptr<DeviceRuntime> runtime,
                                                Device device, const NvJpegOptions& options = {});
  ~NvJpeg();
  NvJpeg(const NvJpeg&) = delete;
  NvJpeg& operator=(const NvJpeg&) = delete;

  /// "nvJPEG 13.0 (/usr/lib/libnvjpeg.so.13)"; for people.
  const std::string& description() const;

  /// Height, width and components; the rest of the header is not said.
  /// **Errors.** DataLoss if it is no JPEG; InvalidArgument if it is of a kind not decoded.
  StatusOr<JpegHeader> ReadHeader(std::span<const std::byte> file) const;

  /// Decodes into `to`, memory of the device: height * width * channels bytes, at most `size`.
  /// `mode` is kGray or kRgb. Returns when the host's part is done; `file` and `to` stay until the
  /// stream has come past.
  /// **Errors.** As ReadHeader; InvalidArgument for another mode, too little memory or an image
  /// beyond the limits; DataLoss if the end of the file is missing.
  Status Decode(std::span<const std::byte> file, ColorMode mode, void* to, Bytes size,
                const Stream& stream);

 private:
  struct Impl;
  explicit NvJpeg(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_NVJPEG_H_
