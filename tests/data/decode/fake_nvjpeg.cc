// SPDX-License-Identifier: Apache-2.0
// An nvJPEG of a few lines: files are "FAKE", height, width, a byte and the end of a JPEG. It fills
// the image with that byte through the CUDA run time, in the stream it is given.
#include <cuda_runtime_api.h>

#include <cstddef>

#include "data/decode/nvjpeg_internal.h"

using ait::internal::NvJpegImage;

namespace {
int live = 0;
}

extern "C" {

int nvjpegGetProperty(int property, int* value) {
  *value = property == 0 ? 13 : 7;
  return 0;
}
int nvjpegCreateSimple(void** handle) {
  ++live;
  *handle = &live;
  return 0;
}
int nvjpegDestroy(void*) {
  --live;
  return 0;
}
int nvjpegJpegStateCreate(void*, void** state) {
  ++live;
  *state = &live;
  return 0;
}
int nvjpegJpegStateDestroy(void*) {
  --live;
  return 0;
}
int nvjpegGetImageInfo(void*, const unsigned char* data, std::size_t length, int* components,
                       int* subsampling, int* widths, int* heights) {
  if (length < 7 || data[0] != 'F') return ait::internal::kNvJpegBadJpeg;
  if (data[1] != 'A') return ait::internal::kNvJpegNotSupported;
  *components = 3;
  *subsampling = 0;
  heights[0] = data[4];
  widths[0] = data[5];
  return 0;
}
int nvjpegDecode(void*, void*, const unsigned char* data, std::size_t, int format, NvJpegImage* to,
                 void* stream) {
  const std::size_t row = static_cast<std::size_t>(data[5]) * (format == 5 ? 3 : 1);
  if (to->pitch[0] != row) return ait::internal::kNvJpegInvalidParameter;
  const auto result =
      cudaMemsetAsync(to->channel[0], data[6], row * data[4], static_cast<cudaStream_t>(stream));
  return result == cudaSuccess ? 0 : ait::internal::kNvJpegExecutionFailed;
}
}
