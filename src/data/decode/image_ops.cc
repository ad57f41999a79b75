// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/image_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ait::inline v0 {
namespace {

/// Halves to even, as Python's round.
int Round(double x) { return static_cast<int>(std::nearbyint(x)); }

std::uint8_t Luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 0x8000U) >>
                                   16);
}

template <int kChannels>
void MirrorRow(const std::uint8_t* from, int width, std::uint8_t* to) {
  const std::uint8_t* last = from + std::ptrdiff_t{width - 1} * kChannels;
  for (int x = 0; x < width; ++x, last -= kChannels, to += kChannels) {
    for (int c = 0; c < kChannels; ++c) to[c] = last[c];
  }
}

/// What is at (y, x) of the result lies at (x, y).
template <int kChannels>
void Transpose(const ImageView& from, Image& to) {
  for (int y = 0; y < from.height; ++y) {
    const std::uint8_t* pixel = from.Row(y);
    for (int x = 0; x < from.width; ++x, pixel += kChannels) {
      std::memcpy(to.Row(x) + std::ptrdiff_t{y} * kChannels, pixel, kChannels);
    }
  }
}

/// `image` blended with another by a factor, as Pillow: in float, clipped, cut to an integer.
std::uint8_t Blend(std::uint8_t other, std::uint8_t pixel, float factor) {
  const float a = other;
  const float value = a + factor * (static_cast<float>(pixel) - a);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

}  // namespace

Rect CenterRect(int image_height, int image_width, int height, int width) {
  height = std::min(height, image_height);
  width = std::min(width, image_width);
  return {Round((image_height - height) / 2.0), Round((image_width - width) / 2.0), height, width};
}

Rect RandomCropRect(int image_height, int image_width, int height, int width,
                    SampleRandom& random) {
  height = std::min(height, image_height);
  width = std::min(width, image_width);
  const auto top = static_cast<int>(random.Below(image_height - height + 1));
  const auto left = static_cast<int>(random.Below(image_width - width + 1));
  return {top, left, height, width};
}

Rect RandomResizedCropRect(int image_height, int image_width, const RandomAreaOptions& options,
                           SampleRandom& random) {
  const double area = static_cast<double>(image_height) * image_width;
  for (int trial = 0; trial < 10; ++trial) {
    const double target = area * random.Uniform(options.min_area, options.max_area);
    const double ratio =
        std::exp(random.Uniform(std::log(options.min_ratio), std::log(options.max_ratio)));
    const double width = std::nearbyint(std::sqrt(target * ratio));
    const double height = std::nearbyint(std::sqrt(target / ratio));
    if (width >= 1 && width <= image_width && height >= 1 && height <= image_height) {
      return RandomCropRect(image_height, image_width, static_cast<int>(height),
                            static_cast<int>(width), random);
    }
  }
  int height = image_height;
  int width = image_width;
  const double ratio = static_cast<double>(image_width) / image_height;
  if (ratio < options.min_ratio) {
    height = std::clamp(Round(width / options.min_ratio), 1, image_height);
  } else if (ratio > options.max_ratio) {
    width = std::clamp(Round(height * options.max_ratio), 1, image_width);
  }
  return {(image_height - height) / 2, (image_width - width) / 2, height, width};
}

std::pair<int, int> ShorterSideTo(int height, int width, int side) {
  const auto longer = [side](int a, int b) {
    return static_cast<int>(std::max<std::int64_t>(1, std::int64_t{side} * b / a));
  };
  if (height <= width) return {side, longer(height, width)};
  return {longer(width, height), side};
}

StatusOr<Image> FlipHorizontally(const ImageView& image) {
  AIT_ASSIGN_OR_RETURN(Image to, Image::Create(image.height, image.width, image.channels));
  for (int y = 0; y < image.height; ++y) {
    switch (image.channels) {
      case 1:
        MirrorRow<1>(image.Row(y), image.width, to.Row(y));
        break;
      case 3:
        MirrorRow<3>(image.Row(y), image.width, to.Row(y));
        break;
      default:
        MirrorRow<4>(image.Row(y), image.width, to.Row(y));
    }
  }
  return to;
}

StatusOr<Image> FlipVertically(const ImageView& image) {
  if (image.height == 0) return InvalidArgumentError("an image of no rows cannot be flipped");
  return Image::Copy(
      {image.Row(image.height - 1), image.height, image.width, image.channels, -image.row_bytes});
}

StatusOr<Image> ApplyOrientation(const ImageView& image, int orientation) {
  if (orientation < 1 || orientation > 8) {
    return InvalidArgumentError("the orientation is ", orientation, "; allowed are 1 to 8");
  }
  if (orientation == 1) return Image::Copy(image);
  if (orientation == 2) return FlipHorizontally(image);
  if (orientation == 4) return FlipVertically(image);
  if (orientation == 3) {
    AIT_ASSIGN_OR_RETURN(const Image flipped, FlipVertically(image));
    return FlipHorizontally(flipped);
  }
  AIT_ASSIGN_OR_RETURN(Image turned, Image::Create(image.width, image.height, image.channels));
  if (image.channels == 1) Transpose<1>(image, turned);
  if (image.channels == 3) Transpose<3>(image, turned);
  if (image.channels == 4) Transpose<4>(image, turned);
  if (orientation == 5) return turned;
  if (orientation == 6) return FlipHorizontally(turned);
  if (orientation == 8) return FlipVertically(turned);
  AIT_ASSIGN_OR_RETURN(const Image flipped, FlipVertically(turned));
  return FlipHorizontally(flipped);
}

StatusOr<Image> ConvertColor(const ImageView& image, ColorMode mode) {
  const int channels = mode == ColorMode::kUnchanged ? image.channels : static_cast<int>(mode);
  if (channels == image.channels) return Image::Copy(image);
  AIT_ASSIGN_OR_RETURN(Image result, Image::Create(image.height, image.width, channels));
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.Row(y);
    std::uint8_t* to = result.Row(y);
    for (int x = 0; x < image.width; ++x, from += image.channels, to += channels) {
      if (channels == 1) {
        to[0] = Luma(from);
        continue;
      }
      for (int c = 0; c < 3; ++c) to[c] = from[image.channels == 1 ? 0 : c];
      if (channels == 4) to[3] = 255;
    }
  }
  return result;
}

StatusOr<Image> AdjustColor(const ImageView& image, const ColorFactors& factors) {
  AIT_ASSIGN_OR_RETURN(Image result, Image::Copy(image));
  const int colors = image.channels == 1 ? 1 : 3;
  const auto for_each_pixel = [&](const auto& change) {
    for (int y = 0; y < result.height(); ++y) {
      std::uint8_t* pixel = result.Row(y);
      for (int x = 0; x < result.width(); ++x, pixel += result.channels()) change(pixel);
    }
  };
  const auto blend = [&](std::uint8_t* pixel, std::uint8_t other, double factor) {
    for (int c = 0; c < colors; ++c) pixel[c] = Blend(other, pixel[c], static_cast<float>(factor));
  };
  const auto gray = [&](const std::uint8_t* pixel) { return colors == 1 ? *pixel : Luma(pixel); };
  if (factors.brightness != 1) {
    for_each_pixel([&](std::uint8_t* pixel) { blend(pixel, 0, factors.brightness); });
  }
  if (factors.contrast != 1) {
    std::int64_t sum = 0;
    for_each_pixel([&](const std::uint8_t* pixel) { sum += gray(pixel); });
    const double count = static_cast<double>(image.height) * image.width;
    const auto mean = static_cast<std::uint8_t>(static_cast<double>(sum) / count + 0.5);
    for_each_pixel([&](std::uint8_t* pixel) { blend(pixel, mean, factors.contrast); });
  }
  if (factors.saturation != 1 && colors == 3) {
    for_each_pixel([&](std::uint8_t* pixel) { blend(pixel, Luma(pixel), factors.saturation); });
  }
  return result;
}

}  // namespace ait::inline v0
