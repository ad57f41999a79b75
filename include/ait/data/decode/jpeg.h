// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_JPEG_H_
#define AIT_DATA_DECODE_JPEG_H_

// JPEG files to pixels: whole, only a region, or at a fraction of the size.
//
// A training step wants a crop of 224 pixels of a photo of 2,000. Decoding only the region that the
// crop needs, and at the scale it needs, costs a fraction of the whole. A region decoded alone is
// bit for bit what it is in the whole image.
//
//   AIT_ASSIGN_OR_RETURN(JpegHeader header, ReadJpegHeader(file));
//   AIT_ASSIGN_OR_RETURN(Image image, DecodeJpeg(file, {.region = Rect{100, 80, 512, 512}}));
//
// The decoder (libjpeg-turbo) goes on after damage with a warning and gray pixels. Here a warning
// is an error, unless `JpegWarnings::kAccept` says otherwise. Built without libjpeg, all functions
// return Unimplemented.
//
// **Thread-safety.** All functions may be called by any thread.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/decode/image.h"

namespace ait::inline v0 {

enum class JpegWarnings : std::uint8_t {
  kRefuse,  // a file with any damage is DataLoss
  kAccept,  // pixels as the decoder made them up; for archives with stray bytes between markers
};

/// What the EXIF tag of a camera held sideways means.
enum class Orientation : std::uint8_t { kIgnore, kApply };

struct JpegHeader {
  int height = 0;  // as stored; `orientation` 5 to 8 swap height and width of the upright image
  int width = 0;
  int components = 0;  // 1 gray, 3 color, 4 CMYK or YCCK
  bool is_progressive = false;
  int orientation = 1;  // of EXIF: 1 … 8; 1 is upright
};

struct JpegOptions {
  ColorMode mode = ColorMode::kRgb;
  /// The part wanted, in pixels of the whole image at full size (upright with kApply).
  std::optional<Rect> region = {};
  /// Size of the result in eighths: 1 … 16. Sides are rounded up, and `ScaledRect` of the region
  /// is what comes back.
  int scale_eighths = 8;
  Orientation orientation = Orientation::kIgnore;
  JpegWarnings warnings = JpegWarnings::kRefuse;
  ImageLimits limits = {};  // of the whole image, at full size and as scaled
};

/// **Errors.** DataLoss if it is no JPEG or its header is damaged; InvalidArgument if it is one
/// of a kind that is not decoded (lossless, 12 bit).
StatusOr<JpegHeader> ReadJpegHeader(std::span<const std::byte> file);

/// **Errors.** As ReadJpegHeader, and DataLoss for a truncated or damaged file: what lies behind
/// the region is not decoded, but the end of the file must be there. InvalidArgument if the
/// image exceeds the limits, or the region or scale is out of range.
StatusOr<Image> DecodeJpeg(std::span<const std::byte> file, const JpegOptions& options);

/// The least region at that scale that covers `rect` of the full size.
Rect ScaledRect(const Rect& rect, int scale_eighths);

/// The least scale, up to 8, at which `rect` keeps `height` x `width` pixels or more.
int ScaleFor(const Rect& rect, int height, int width);

enum class JpegSubsampling : std::uint8_t { k444, k422, k420 };

struct JpegEncodeOptions {
  int quality = 90;  // 1 … 100
  JpegSubsampling subsampling = JpegSubsampling::k420;
  bool is_progressive = false;
};

/// Writes gray or RGB. **Errors.** InvalidArgument for other channels.
StatusOr<std::vector<std::byte>> EncodeJpeg(const ImageView& image,
                                            const JpegEncodeOptions& options = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_JPEG_H_
