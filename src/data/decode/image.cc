// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/image.h"

#include <cstring>
#include <new>
#include <utility>

namespace ait::inline v0 {

StatusOr<Image> Image::Create(int height, int width, int channels) {
  if (height < 1 || width < 1) {
    return InvalidArgumentError("an image of height ", height, " and width ", width,
                                " was asked for; both must be 1 or more");
  }
  if (channels != 1 && channels != 3 && channels != 4) {
    return InvalidArgumentError("an image of ", channels,
                                " channels was asked for; allowed are 1, 3 and 4");
  }
  Image image;
  image.height_ = height;
  image.width_ = width;
  image.channels_ = channels;
  try {
    image.pixels_ = std::make_shared_for_overwrite<std::uint8_t[]>(image.size_bytes());
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("no memory for an image of ", height, " x ", width, " x ",
                                  channels, " bytes");
  }
  return image;
}

StatusOr<Image> Image::Copy(const ImageView& view) {
  AIT_ASSIGN_OR_RETURN(Image image, Create(view.height, view.width, view.channels));
  for (int y = 0; y < view.height; ++y) {
    std::memcpy(image.Row(y), view.Row(y), image.row_bytes());
  }
  return image;
}

ImageView Image::view() const {
  return {data(), height_, width_, channels_, static_cast<std::ptrdiff_t>(row_bytes())};
}

ByteView Image::bytes() const {
  return ByteView(std::as_bytes(std::span(data(), size_bytes())), pixels_);
}

SampleField Image::ToField(std::string name) const {
  return {.name = std::move(name),
          .value = bytes(),
          .kind = FieldKind::kArray,
          .dtype = DType::kUInt8,
          .shape = {height_, width_, channels_}};
}

StatusOr<ImageView> ImageOf(const SampleField& field) {
  const auto& shape = field.shape;
  const bool is_image = field.kind == FieldKind::kArray && field.dtype == DType::kUInt8 &&
                        (shape.size() == 2 ||
                         (shape.size() == 3 && (shape[2] == 1 || shape[2] == 3 || shape[2] == 4)));
  if (!is_image) {
    return InvalidArgumentError("field ", field.name,
                                " is not an image: it must be an array of uint8 with shape "
                                "(height, width) or (height, width, channels); decode it first");
  }
  constexpr std::int64_t kMaxSide = 1 << 30;
  if (shape[0] < 1 || shape[1] < 1 || shape[0] > kMaxSide || shape[1] > kMaxSide ||
      ElementCount(shape) != static_cast<std::int64_t>(field.value.size_bytes())) {
    return InvalidArgumentError("field ", field.name, " has ", field.value.size_bytes(),
                                " bytes, which are not an image of height ", shape[0],
                                " and width ", shape[1]);
  }
  const int channels = shape.size() == 2 ? 1 : static_cast<int>(shape[2]);
  const int width = static_cast<int>(shape[1]);
  return ImageView{reinterpret_cast<const std::uint8_t*>(field.value.data()),
                   static_cast<int>(shape[0]), width, channels, std::ptrdiff_t{width} * channels};
}

Status CheckImageSize(std::int64_t height, std::int64_t width, const ImageLimits& limits) {
  if (height < 1 || width < 1) {
    return DataLossError("the image has height ", height, " and width ", width);
  }
  if (height > limits.max_side || width > limits.max_side) {
    return InvalidArgumentError("the image has height ", height, " and width ", width,
                                "; allowed is ", limits.max_side, " (ImageLimits::max_side)");
  }
  if (height * width > limits.max_pixels) {
    return InvalidArgumentError("the image has ", height, " x ", width, " = ", height * width,
                                " pixels; allowed are ", limits.max_pixels,
                                " (ImageLimits::max_pixels)");
  }
  return OkStatus();
}

Status CheckRect(const Rect& rect, int height, int width) {
  if (rect.height < 1 || rect.width < 1 || rect.top < 0 || rect.left < 0 ||
      rect.height > height - rect.top || rect.width > width - rect.left) {
    return InvalidArgumentError("the rectangle of ", rect.height, " x ", rect.width, " at (",
                                rect.top, ", ", rect.left, ") does not lie in an image of ", height,
                                " x ", width);
  }
  return OkStatus();
}

}  // namespace ait::inline v0
