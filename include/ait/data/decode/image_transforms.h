// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_IMAGE_TRANSFORMS_H_
#define AIT_DATA_DECODE_IMAGE_TRANSFORMS_H_

// Transforms of images: from an encoded file to the array that a model reads.
//
//   auto train = Chain({DecodeImage({.random_crop = RandomCropOptions{.height = 224, .width = 224}}),
//                       RandomFlip(),
//                       Normalize({.normalization = ImageNetNormalization()})});
//   auto test = Chain({DecodeImage(), ResizeShorter({.side = 256}),
//                      CenterCrop({.height = 224, .width = 224}),
//                      Normalize({.normalization = ImageNetNormalization()})});
//
// They work on the field "image", an array of bytes (height, width, channels); after `Normalize` it
// has floating-point numbers. Random numbers are those of the sample, drawn in the order of the
// chain: the same seed, epoch and sample give the same image in any thread and on any rank.
//
// **Errors.** A damaged file, one that exceeds the limits or a missing field is a bad sample
// (DataLoss or InvalidArgument).

#include <optional>
#include <string>
#include <vector>

#include "ait/data/decode/image_ops.h"
#include "ait/data/decode/jpeg.h"
#include "ait/data/decode/resize.h"
#include "ait/data/decode/transform.h"

namespace ait::inline v0 {

/// A random part of the image, resized: torchvision's RandomResizedCrop.
struct RandomCropOptions {
  std::string field = "image";  // DecodeImage has its own
  int height = 224;
  int width = 224;
  RandomAreaOptions area = {};
  ResizeFilter filter = ResizeFilter::kBilinear;
};

/// Whether a JPEG of which a small image is made may be decoded at a fraction of its size.
enum class JpegScaling : std::uint8_t {
  kNever,  // the same pixels as to decode, crop and resize
  kDown,   // by the least fraction that is still as large as the result: faster, pixels differ
};

struct DecodeImageOptions {
  /// The first of these that a sample has is decoded, and goes.
  std::vector<std::string> fields = {"jpg", "jpeg", "png", "image"};
  std::string output = "image";
  ColorMode mode = ColorMode::kRgb;
  /// Decodes only the region that is asked for: the result of `RandomResizedCrop` after it, at a
  /// fraction of the work.
  std::optional<RandomCropOptions> random_crop = {};
  JpegScaling scaling = JpegScaling::kNever;
  Orientation orientation = Orientation::kIgnore;
  JpegWarnings warnings = JpegWarnings::kRefuse;
  ImageLimits limits = {};
};
/// JPEG or PNG, told apart by their first bytes.
Transform DecodeImage(DecodeImageOptions options = {});

struct ResizeImageOptions {
  std::string field = "image";
  int height = 224;
  int width = 224;
  ResizeFilter filter = ResizeFilter::kBilinear;
};
Transform ResizeImage(ResizeImageOptions options);

struct ResizeShorterOptions {
  std::string field = "image";
  int side = 256;  // that the shorter side becomes
  ResizeFilter filter = ResizeFilter::kBilinear;
};
Transform ResizeShorter(ResizeShorterOptions options);

struct CenterCropOptions {
  std::string field = "image";
  int height = 224;
  int width = 224;
};
/// An image that is smaller is a bad sample; resize it first.
Transform CenterCrop(CenterCropOptions options);

Transform RandomResizedCrop(RandomCropOptions options);

struct RandomFlipOptions {
  std::string field = "image";
  double horizontal = 0.5;  // probability
  double vertical = 0;
};
Transform RandomFlip(RandomFlipOptions options = {});

/// Each factor uniform in [1 − x, 1 + x], not below 0.
struct ColorJitterOptions {
  std::string field = "image";
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
};
/// In the order brightness, contrast, saturation; three numbers are drawn in any case.
Transform ColorJitter(ColorJitterOptions options);

struct NormalizeOptions {
  std::string field = "image";
  Normalization normalization = {};
  Layout layout = Layout::kChw;
  DType dtype = DType::kFloat32;
};
Transform Normalize(NormalizeOptions options);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_IMAGE_TRANSFORMS_H_
