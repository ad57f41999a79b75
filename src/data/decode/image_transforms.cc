// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/image_transforms.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "ait/data/decode/png.h"
#include "data/decode/field_internal.h"

namespace ait::inline v0 {
namespace {

using internal::FieldOf;
using internal::Replace;

/// The transform that replaces an image by what `function` makes of it.
template <typename Options, typename Function>
Transform OnImage(Options options, Function function) {
  return [options = std::move(options), function](Sample& sample, SampleRandom& random) -> Status {
    AIT_ASSIGN_OR_RETURN(const SampleField* field, FieldOf(sample, options.field));
    AIT_ASSIGN_OR_RETURN(const ImageView image, ImageOf(*field));
    AIT_ASSIGN_OR_RETURN(const Image result, function(image, options, random));
    Replace(sample, options.field, {}, result.ToField(options.field));
    return OkStatus();
  };
}

bool IsPng(std::span<const std::byte> file) {
  return file.size() >= 4 && file[0] == std::byte{0x89} && file[1] == std::byte{'P'} &&
         file[2] == std::byte{'N'} && file[3] == std::byte{'G'};
}

bool IsJpeg(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8};
}

StatusOr<Image> CropAndResize(const ImageView& image, const RandomCropOptions& options,
                              SampleRandom& random) {
  const Rect rect = RandomResizedCropRect(image.height, image.width, options.area, random);
  return Resize(image.Crop(rect), options.height, options.width, {.filter = options.filter});
}

StatusOr<Image> DecodeJpegPart(std::span<const std::byte> file, const DecodeImageOptions& options,
                               JpegOptions jpeg, SampleRandom& random) {
  AIT_ASSIGN_OR_RETURN(const JpegHeader header, ReadJpegHeader(file));
  AIT_RETURN_IF_ERROR(CheckImageSize(header.height, header.width, options.limits));
  const RandomCropOptions& crop = *options.random_crop;
  const bool is_turned = options.orientation == Orientation::kApply && header.orientation >= 5;
  const int height = is_turned ? header.width : header.height;
  const int width = is_turned ? header.height : header.width;
  const Rect rect = RandomResizedCropRect(height, width, crop.area, random);
  jpeg.region = rect;
  if (options.scaling == JpegScaling::kDown) {
    jpeg.scale_eighths = ScaleFor(rect, crop.height, crop.width);
  }
  AIT_ASSIGN_OR_RETURN(const Image part, DecodeJpeg(file, jpeg));
  const double m = jpeg.scale_eighths / 8.0;
  const Rect scaled = ScaledRect(rect, jpeg.scale_eighths);
  // The rectangle lies between the pixels of the scaled image.
  const double top = rect.top * m - scaled.top;
  const double left = rect.left * m - scaled.left;
  const Box box = {top, left, std::min(rect.height * m, part.height() - top),
                   std::min(rect.width * m, part.width() - left)};
  return Resize(part, crop.height, crop.width, {.filter = crop.filter, .box = box});
}

StatusOr<Image> DecodeFile(std::span<const std::byte> file, const DecodeImageOptions& options,
                           SampleRandom& random) {
  if (IsJpeg(file)) {
    const JpegOptions jpeg = {.mode = options.mode,
                              .orientation = options.orientation,
                              .warnings = options.warnings,
                              .limits = options.limits};
    if (options.random_crop.has_value()) return DecodeJpegPart(file, options, jpeg, random);
    return DecodeJpeg(file, jpeg);
  }
  if (!IsPng(file)) {
    return DataLossError("it is neither a JPEG nor a PNG, by its first bytes of ", file.size());
  }
  AIT_ASSIGN_OR_RETURN(Image image,
                       DecodePng(file, {.mode = options.mode, .limits = options.limits}));
  if (options.random_crop.has_value()) return CropAndResize(image, *options.random_crop, random);
  return image;
}

}  // namespace

Transform DecodeImage(DecodeImageOptions options) {
  return [options = std::move(options)](Sample& sample, SampleRandom& random) -> Status {
    const auto name = std::find_if(
        options.fields.begin(), options.fields.end(),
        [&](const std::string& candidate) { return sample.Find(candidate) != nullptr; });
    if (name == options.fields.end()) {
      std::string names;
      for (const std::string& candidate : options.fields) {
        names += StrCat(names.empty() ? "" : " or ", candidate);
      }
      return internal::MissingField(sample, names);
    }
    const SampleField* field = sample.Find(*name);
    if (field->kind == FieldKind::kArray) {
      return InvalidArgumentError("field ", *name, " is an array already, not an encoded image");
    }
    const StatusOr<Image> image = DecodeFile(field->value.bytes(), options, random);
    if (!image.ok()) return Annotate(image.status(), StrCat("field ", *name));
    Replace(sample, *name, options.output, image->ToField(options.output));
    return OkStatus();
  };
}

Transform ResizeImage(ResizeImageOptions options) {
  return OnImage(std::move(options),
                 [](const ImageView& image, const ResizeImageOptions& o, SampleRandom&) {
                   return Resize(image, o.height, o.width, {.filter = o.filter});
                 });
}

Transform ResizeShorter(ResizeShorterOptions options) {
  return OnImage(std::move(options),
                 [](const ImageView& image, const ResizeShorterOptions& o, SampleRandom&) {
                   const auto [height, width] = ShorterSideTo(image.height, image.width, o.side);
                   return Resize(image, height, width, {.filter = o.filter});
                 });
}

Transform CenterCrop(CenterCropOptions options) {
  return OnImage(
      std::move(options),
      [](const ImageView& image, const CenterCropOptions& o, SampleRandom&) -> StatusOr<Image> {
        if (o.height < 1 || o.width < 1 || image.height < o.height || image.width < o.width) {
          return InvalidArgumentError("the image of ", image.height, " x ", image.width,
                                      " has no middle of ", o.height, " x ", o.width,
                                      "; resize it first");
        }
        return Image::Copy(image.Crop(CenterRect(image.height, image.width, o.height, o.width)));
      });
}

Transform RandomResizedCrop(RandomCropOptions options) {
  return OnImage(std::move(options), CropAndResize);
}

Transform RandomFlip(RandomFlipOptions options) {
  return OnImage(std::move(options),
                 [](const ImageView& image, const RandomFlipOptions& o,
                    SampleRandom& random) -> StatusOr<Image> {
                   const bool is_mirrored = random.Chance(o.horizontal);
                   const bool is_turned = random.Chance(o.vertical);
                   if (is_mirrored && is_turned) return ApplyOrientation(image, 3);
                   if (is_mirrored) return FlipHorizontally(image);
                   if (is_turned) return FlipVertically(image);
                   return Image::Copy(image);
                 });
}

Transform ColorJitter(ColorJitterOptions options) {
  return OnImage(std::move(options), [](const ImageView& image, const ColorJitterOptions& o,
                                        SampleRandom& random) {
    const auto draw = [&](double x) { return random.Uniform(std::max(0.0, 1 - x), 1 + x); };
    const double brightness = draw(o.brightness);
    const double contrast = draw(o.contrast);
    return AdjustColor(image, {brightness, contrast, draw(o.saturation)});
  });
}

Transform Normalize(NormalizeOptions options) {
  return [options = std::move(options)](Sample& sample, SampleRandom&) -> Status {
    AIT_ASSIGN_OR_RETURN(const SampleField* field, FieldOf(sample, options.field));
    AIT_ASSIGN_OR_RETURN(const ImageView image, ImageOf(*field));
    const std::int64_t count = std::int64_t{image.height} * image.width * image.channels;
    const auto size = static_cast<std::size_t>(count * SizeOf(options.dtype));
    std::shared_ptr<std::byte[]> numbers;
    try {
      numbers = std::make_shared_for_overwrite<std::byte[]>(size);
    } catch (const std::bad_alloc&) {
      return ResourceExhaustedError("no memory to normalise an image of ", count, " bytes");
    }
    AIT_RETURN_IF_ERROR(NormalizeInto(image, options.normalization, options.layout, options.dtype,
                                      {numbers.get(), size}));
    SampleField result = {.value = ByteView({numbers.get(), size}, numbers),
                          .kind = FieldKind::kArray,
                          .dtype = options.dtype};
    if (options.layout == Layout::kChw) {
      result.shape = {image.channels, image.height, image.width};
    } else {
      result.shape = {image.height, image.width, image.channels};
    }
    Replace(sample, options.field, {}, std::move(result));
    return OkStatus();
  };
}

}  // namespace ait::inline v0
