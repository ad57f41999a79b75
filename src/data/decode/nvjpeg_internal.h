// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_NVJPEG_INTERNAL_H_
#define AIT_DATA_DECODE_NVJPEG_INTERNAL_H_

// What ait calls of nvJPEG, declared here so that its headers are not needed: the C interface of
// releases 11 to 13 (NVIDIA, "nvJPEG", API reference).

#include <cstddef>

namespace ait::inline v0::internal {

enum NvJpegStatus : int {
  kNvJpegOk = 0,
  kNvJpegNotInitialized = 1,
  kNvJpegInvalidParameter = 2,
  kNvJpegBadJpeg = 3,
  kNvJpegNotSupported = 4,
  kNvJpegAllocatorFailure = 5,
  kNvJpegExecutionFailed = 6,
  kNvJpegArchMismatch = 7,
  kNvJpegInternalError = 8,
  kNvJpegImplementationNotSupported = 9,
};

inline constexpr int kNvJpegComponents = 4;
inline constexpr int kNvJpegOutputY = 2;
inline constexpr int kNvJpegOutputRgbInterleaved = 5;

struct NvJpegImage {
  unsigned char* channel[kNvJpegComponents];
  std::size_t pitch[kNvJpegComponents];
};

/// The functions of the library; all must be there.
struct NvJpegFunctions {
  int (*nvjpegGetProperty)(int property, int* value) = nullptr;
  int (*nvjpegCreateSimple)(void** handle) = nullptr;
  int (*nvjpegDestroy)(void* handle) = nullptr;
  int (*nvjpegJpegStateCreate)(void* handle, void** state) = nullptr;
  int (*nvjpegJpegStateDestroy)(void* state) = nullptr;
  int (*nvjpegGetImageInfo)(void* handle, const unsigned char* data, std::size_t length,
                            int* components, int* subsampling, int* widths, int* heights) = nullptr;
  int (*nvjpegDecode)(void* handle, void* state, const unsigned char* data, std::size_t length,
                      int format, NvJpegImage* destination, void* stream) = nullptr;
};

#define AIT_NVJPEG_FUNCTIONS(X) \
  X(nvjpegGetProperty)          \
  X(nvjpegCreateSimple)         \
  X(nvjpegDestroy)              \
  X(nvjpegJpegStateCreate)      \
  X(nvjpegJpegStateDestroy)     \
  X(nvjpegGetImageInfo)         \
  X(nvjpegDecode)

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_DECODE_NVJPEG_INTERNAL_H_
