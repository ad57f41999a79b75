// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_JPEG_INTERNAL_H_
#define AIT_DATA_DECODE_JPEG_INTERNAL_H_

// What jpeg.cc and jpeg_encode.cc share: errors of libjpeg without an end of the process.

#include <csetjmp>
#include <cstddef>  // before jpeglib.h, which needs size_t and FILE
#include <cstdint>
#include <cstdio>
#include <span>

#include "ait/base/status.h"
#include "ait/data/decode/jpeg.h"
#include "jpeglib.h"

namespace ait::inline v0::internal {

/// The error handler of one decoder or encoder. An error, or a warning unless they are accepted,
/// jumps to where `Guarded` was called.
struct JpegErrors {
  jpeg_error_mgr base;  // first, so that a pointer to it is one to the whole
  std::jmp_buf jump;
  bool accepts_warnings;
  char text[JMSG_LENGTH_MAX];

  void Install(bool accept_warnings);
};

/// Calls `function`; false if libjpeg gave up, and `errors.text` says why. The jump skips
/// destructors: `function` may have no variables that need one.
template <typename Function>
[[nodiscard]] bool Guarded(JpegErrors& errors, const Function& function) {
  if (setjmp(errors.jump) != 0) return false;
  function();
  return true;
}

/// The orientation (1 … 8) in the bytes of an APP1 marker; 1 if it says none.
int ExifOrientation(std::span<const std::uint8_t> marker);

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_DECODE_JPEG_INTERNAL_H_
