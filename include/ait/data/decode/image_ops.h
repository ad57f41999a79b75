// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_IMAGE_OPS_H_
#define AIT_DATA_DECODE_IMAGE_OPS_H_

// Small operations on pixels: which part to take, mirror and turn, colors, and the step from bytes
// to the floating-point numbers that a model reads.
//
//   const Rect rect = RandomResizedCropRect(image.height(), image.width(), {}, random);
//   AIT_ASSIGN_OR_RETURN(Image crop, Resize(image.view().Crop(rect), 224, 224));
//   NormalizeInto(crop, ImageNetNormalization(), DType::kFloat32, buffer);
//
// Crops and their random numbers are those of torchvision: the same distribution, not the same
// numbers.

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/data/decode/image.h"
#include "ait/data/decode/transform.h"

namespace ait::inline v0 {

/// The middle `height` x `width` of an image, at most all of it. Where the margins differ by one
/// pixel, it lies as torchvision's CenterCrop has it (halves round to even).
Rect CenterRect(int image_height, int image_width, int height, int width);

/// A corner uniform among those where `height` x `width` fits; cut to the image.
Rect RandomCropRect(int image_height, int image_width, int height, int width, SampleRandom& random);

/// A part of random area and shape (Szegedy et al., "Going deeper with convolutions", 2014).
struct RandomAreaOptions {
  double min_area = 0.08;  // of the image's
  double max_area = 1;
  double min_ratio = 3.0 / 4;  // width to height; uniform in its logarithm
  double max_ratio = 4.0 / 3;
};
/// Ten trials; then the largest middle part whose ratio is allowed.
Rect RandomResizedCropRect(int image_height, int image_width, const RandomAreaOptions& options,
                           SampleRandom& random);

/// The size of torchvision's Resize(side): the shorter side becomes `side`, the longer follows,
/// rounded down.
std::pair<int, int> ShorterSideTo(int height, int width, int side);

StatusOr<Image> FlipHorizontally(const ImageView& image);  // left to right
StatusOr<Image> FlipVertically(const ImageView& image);    // upside down
/// Turns and mirrors as EXIF orientation 1 … 8 says, so that the result is upright.
StatusOr<Image> ApplyOrientation(const ImageView& image, int orientation);

/// Other channels; see ColorMode. A copy in any case.
StatusOr<Image> ConvertColor(const ImageView& image, ColorMode mode);

/// Brightness, contrast and saturation by a factor each, in this order, as Pillow's ImageEnhance:
/// blends with black, with the mean of gray, and with gray. 1 leaves the image as it is.
struct ColorFactors {
  double brightness = 1;
  double contrast = 1;
  double saturation = 1;
};
StatusOr<Image> AdjustColor(const ImageView& image, const ColorFactors& factors);

enum class Layout : std::uint8_t {
  kChw,  // channels, height, width: what convolutions of libtorch read
  kHwc,  // height, width, channels: "channels last"
};

/// (pixel / 255 − mean) / deviation, each channel by itself.
struct Normalization {
  std::array<float, 4> mean = {0, 0, 0, 0};
  std::array<float, 4> deviation = {1, 1, 1, 1};
};
/// The numbers that models of torchvision were trained with.
Normalization ImageNetNormalization();

/// Writes height * width * channels numbers. **Errors.** InvalidArgument if `to` has not exactly
/// their size, `dtype` is none of float32, bfloat16 and float16, or a deviation is 0.
Status NormalizeInto(const ImageView& image, const Normalization& normalization, Layout layout,
                     DType dtype, std::span<std::byte> to);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_IMAGE_OPS_H_
