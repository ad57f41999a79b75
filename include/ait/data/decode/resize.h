// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_RESIZE_H_
#define AIT_DATA_DECODE_RESIZE_H_

// Images of another size, as Pillow makes them: antialiased, and equal to its pixels.
//
// Models are trained and judged with images that Pillow resized; another filter, or one that does
// not widen when it shrinks, costs accuracy. This is the same arithmetic in vector instructions.
//
//   AIT_ASSIGN_OR_RETURN(Image small, Resize(image, 224, 224, {.filter = ResizeFilter::kBicubic}));
//
// Channels are resized each by itself, alpha as any other. **Thread-safety.** May be called by any
// thread.

#include <cstdint>
#include <optional>

#include "ait/base/status.h"
#include "ait/data/decode/image.h"

namespace ait::inline v0 {

enum class ResizeFilter : std::uint8_t {
  kNearest,   // for masks of classes: makes no new values
  kBox,       // the mean of what a pixel covers
  kBilinear,  // torchvision's default
  kBicubic,   // a = −0.5
  kLanczos,   // of 3 lobes
};

/// A part of an image, also of pixels.
struct Box {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

struct ResizeOptions {
  ResizeFilter filter = ResizeFilter::kBilinear;
  std::optional<Box> box = {};  // what is resized; nullopt: all of it
};

/// **Errors.** InvalidArgument if a side is below 1 or the box does not lie within the image.
StatusOr<Image> Resize(const ImageView& image, int height, int width,
                       const ResizeOptions& options = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_RESIZE_H_
