// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_IMAGE_H_
#define AIT_DATA_DECODE_IMAGE_H_

// Pixels in memory: what decoders make and what resizing, cropping and flipping work on.
//
// Bytes, row by row, the channels of a pixel beside each other (height, width, channels): gray has
// 1 channel, RGB 3, RGBA 4. An `Image` owns its pixels and shares them; an `ImageView` is a window
// on somebody's, and a crop of it costs nothing.
//
//   AIT_ASSIGN_OR_RETURN(Image image, DecodeJpeg(file, {}));
//   ImageView middle = image.view().Crop(CenterRect(image.height(), image.width(), 224, 224));
//
// **Thread-safety.** As of a std::vector; images that share pixels must not write them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ait/base/status.h"
#include "ait/data/byte_view.h"
#include "ait/data/sample.h"

namespace ait::inline v0 {

/// Which channels an image is to have.
enum class ColorMode : std::uint8_t {
  kUnchanged = 0,  // those of the file: gray, RGB or RGBA; CMYK becomes RGB
  kGray = 1,       // luma of ITU-R 601: (19595 R + 38470 G + 7471 B + 2^15) / 2^16
  kRgb = 3,        // alpha is dropped, gray repeated
  kRgba = 4,       // alpha is 255 where the file has none
};

/// A rectangle of pixels.
struct Rect {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;

  bool operator==(const Rect&) const = default;
};

/// What a decoder refuses before it asks for memory: a file of a few bytes may claim any size.
struct ImageLimits {
  int max_side = 65'500;
  std::int64_t max_pixels = std::int64_t{1} << 27;
};

/// Pixels of somebody else.
struct ImageView {
  const std::uint8_t* data = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;
  std::ptrdiff_t row_bytes = 0;  // from one row to the next

  const std::uint8_t* Row(int y) const { return data + y * row_bytes; }
  /// The part in `rect`, which must lie within.
  ImageView Crop(const Rect& rect) const {
    return {Row(rect.top) + static_cast<std::ptrdiff_t>(rect.left) * channels, rect.height,
            rect.width, channels, row_bytes};
  }
  bool is_contiguous() const { return row_bytes == std::ptrdiff_t{width} * channels; }
};

/// Pixels without gaps between rows, shared by all copies of the image.
class Image {
 public:
  /// No pixels.
  Image() = default;
  /// Pixels of unspecified value. **Errors.** InvalidArgument if a side is below 1 or `channels`
  /// is none of 1, 3 and 4; ResourceExhausted if there is no memory.
  static StatusOr<Image> Create(int height, int width, int channels);
  static StatusOr<Image> Copy(const ImageView& view);

  int height() const { return height_; }
  int width() const { return width_; }
  int channels() const { return channels_; }
  std::size_t size_bytes() const { return row_bytes() * static_cast<std::size_t>(height_); }
  std::size_t row_bytes() const { return static_cast<std::size_t>(width_) * channels_; }
  std::uint8_t* data() { return pixels_.get(); }
  const std::uint8_t* data() const { return pixels_.get(); }
  std::uint8_t* Row(int y) { return data() + row_bytes() * static_cast<std::size_t>(y); }

  ImageView view() const;
  operator ImageView() const { return view(); }  // NOLINT: an image is a view of itself
  /// The pixels, shared.
  ByteView bytes() const;
  /// An array field (height, width, channels) that shares the pixels.
  SampleField ToField(std::string name) const;

 private:
  std::shared_ptr<std::uint8_t[]> pixels_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
};

/// The image in a field of dtype uint8 and shape (height, width, channels) or (height, width); it
/// lives as long as the field. **Errors.** InvalidArgument if the field is none.
StatusOr<ImageView> ImageOf(const SampleField& field);

/// OK if an image of this size is within the limits. **Errors.** InvalidArgument that says the size
/// seen and allowed.
Status CheckImageSize(std::int64_t height, std::int64_t width, const ImageLimits& limits);

/// OK if `rect` is not empty and lies within an image of this size. **Errors.** InvalidArgument.
Status CheckRect(const Rect& rect, int height, int width);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_IMAGE_H_
