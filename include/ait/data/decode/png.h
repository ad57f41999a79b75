// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_PNG_H_
#define AIT_DATA_DECODE_PNG_H_

// PNG files to pixels of 8 bits: 1 to 16 bits a sample, palettes, gray, alpha, interlaced or not.
//
//   AIT_ASSIGN_OR_RETURN(Image mask, DecodePng(file, {.mode = ColorMode::kGray}));
//
// 16 bits are scaled to 8 and rounded; 1, 2 and 4 bits are spread over 0 … 255. Gamma and color
// profiles are not applied. Every checksum is verified, also of chunks that are not needed. Built
// without libpng, all functions return Unimplemented.
//
// **Thread-safety.** All functions may be called by any thread.

#include <span>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/decode/image.h"

namespace ait::inline v0 {

struct PngHeader {
  int height = 0;
  int width = 0;
  int bits = 0;      // of a sample, or of an index into the palette
  int channels = 0;  // 1 gray, 2 gray and alpha, 3 RGB or a palette, 4 RGBA
};

struct PngOptions {
  ColorMode mode = ColorMode::kRgb;  // kUnchanged: gray, RGB, or RGBA if it has any transparency
  ImageLimits limits = {};
};

/// **Errors.** DataLoss if it is no PNG or its header is damaged.
StatusOr<PngHeader> ReadPngHeader(std::span<const std::byte> file);

/// **Errors.** DataLoss for a truncated or damaged file; InvalidArgument if the image exceeds the
/// limits.
StatusOr<Image> DecodePng(std::span<const std::byte> file, const PngOptions& options);

struct PngEncodeOptions {
  int compression = 6;  // of zlib: 0 … 9
};

/// Writes gray, RGB or RGBA of 8 bits.
StatusOr<std::vector<std::byte>> EncodePng(const ImageView& image,
                                           const PngEncodeOptions& options = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_PNG_H_
