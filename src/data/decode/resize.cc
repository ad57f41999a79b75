// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numbers>

#include "data/decode/resize_internal.h"

namespace ait::inline v0 {
namespace {

using internal::Taps;

double Sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

/// The kernel of a filter and how far it reaches: Pillow, libImaging/Resample.c.
double Kernel(ResizeFilter filter, double x) {
  switch (filter) {
    case ResizeFilter::kBox:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    case ResizeFilter::kBilinear:
      return std::max(0.0, 1 - std::abs(x));
    case ResizeFilter::kBicubic: {
      constexpr double a = -0.5;
      x = std::abs(x);
      if (x < 1) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
      if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
      return 0;
    }
    case ResizeFilter::kLanczos:
      return x >= -3 && x < 3 ? Sinc(x) * Sinc(x / 3) : 0;
    case ResizeFilter::kNearest:
      break;
  }
  return 0;
}

double Support(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kBox:
      return 0.5;
    case ResizeFilter::kBicubic:
      return 2;
    case ResizeFilter::kLanczos:
      return 3;
    default:
      return 1;
  }
}

/// The input of every output, summed up step by step as Pillow does, roundings included.
std::vector<int> NearestInputs(double start, double length, int size, int input_size) {
  const double step = length / size;
  double at = start + step * 0.5;
  std::vector<int> inputs(static_cast<std::size_t>(size));
  for (int& input : inputs) {
    input = std::clamp(static_cast<int>(at), 0, input_size - 1);
    at += step;
  }
  return inputs;
}

StatusOr<Image> ResizeNearest(const ImageView& image, int height, int width, const Box& box) {
  AIT_ASSIGN_OR_RETURN(Image result, Image::Create(height, width, image.channels));
  const std::vector<int> rows = NearestInputs(box.top, box.height, height, image.height);
  const std::vector<int> columns = NearestInputs(box.left, box.width, width, image.width);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (int y = 0; y < height; ++y) {
    const std::uint8_t* row = image.Row(rows[static_cast<std::size_t>(y)]);
    std::uint8_t* to = result.Row(y);
    for (const int from : columns) {
      std::memcpy(to, row + static_cast<std::size_t>(from) * channels, channels);
      to += channels;
    }
  }
  return result;
}

/// Rows `first` … `first + count` of `image`, as wide as `taps` says.
StatusOr<Image> ResizeWidth(const ImageView& image, int first, int count, const Taps& taps) {
  constexpr int kRows = internal::kStripRows;
  const internal::ResizeKernels& kernels = internal::ChooseResizeKernels();
  const internal::TapsView view = {taps.begin.size(), taps.stride, taps.begin.data(),
                                   taps.count.data(), taps.weight.data()};
  const auto width = static_cast<int>(taps.begin.size());
  AIT_ASSIGN_OR_RETURN(Image result, Image::Create(count, width, image.channels));
  const std::ptrdiff_t from_bytes = std::ptrdiff_t{image.width} * image.channels;
  const std::ptrdiff_t to_bytes = std::ptrdiff_t{width} * image.channels;
  std::vector<std::uint8_t> from(static_cast<std::size_t>(from_bytes * kRows));
  std::vector<std::uint8_t> to(static_cast<std::size_t>(to_bytes * kRows));
  std::vector<std::uint8_t> unused(static_cast<std::size_t>(to_bytes));
  for (int y = 0; y < count; y += kRows) {
    const std::uint8_t* in[kRows];
    std::uint8_t* out[kRows];
    for (int r = 0; r < kRows; ++r) {
      in[r] = image.Row(first + std::min(y + r, count - 1));
      out[r] = y + r < count ? result.Row(y + r) : unused.data();
    }
    internal::ToColumns(in, from_bytes, from.data());
    kernels.columns(from.data(), image.channels, view, to.data());
    internal::ToRows(to.data(), to_bytes, out);
  }
  return result;
}

Status CheckBox(const Box& box, const ImageView& image) {
  if (box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
      box.top + box.height <= image.height && box.left + box.width <= image.width) {
    return OkStatus();
  }
  return InvalidArgumentError("the box of ", box.height, " x ", box.width, " at (", box.top, ", ",
                              box.left, ") does not lie in an image of ", image.height, " x ",
                              image.width);
}

StatusOr<Image> ResizeSmoothly(const ImageView& image, int height, int width, ResizeFilter filter,
                               const Box& box) {
  const bool keeps_width = width == image.width && box.left == 0 && box.width == image.width;
  const bool keeps_height = height == image.height && box.top == 0 && box.height == image.height;
  if (keeps_width && keeps_height) return Image::Copy(image);
  if (keeps_height) {
    return ResizeWidth(image, 0, height,
                       internal::MakeTaps(filter, image.width, box.left, box.width, width));
  }
  const Taps rows = internal::MakeTaps(filter, image.height, box.top, box.height, height);
  ImageView source = image;
  int first = 0;  // row of the image that is the first of `source`
  Image narrowed;
  if (!keeps_width) {
    first = rows.begin.front();
    const int end = rows.begin.back() + rows.count.back();
    AIT_ASSIGN_OR_RETURN(
        narrowed, ResizeWidth(image, first, end - first,
                              internal::MakeTaps(filter, image.width, box.left, box.width, width)));
    source = narrowed;
  }
  AIT_ASSIGN_OR_RETURN(Image result, Image::Create(height, width, image.channels));
  const internal::ResizeKernels& kernels = internal::ChooseResizeKernels();
  for (int y = 0; y < height; ++y) {
    const auto i = static_cast<std::size_t>(y);
    kernels.rows(source.Row(rows.begin[i] - first), source.row_bytes,
                 rows.weight.data() + i * static_cast<std::size_t>(rows.stride), rows.count[i],
                 static_cast<std::ptrdiff_t>(result.row_bytes()), result.Row(y));
  }
  return result;
}

}  // namespace

internal::Taps internal::MakeTaps(ResizeFilter filter, int input_size, double start, double length,
                                  int size) {
  const double scale = length / size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = Support(filter) * filter_scale;
  const double inverse = 1.0 / filter_scale;
  Taps taps;
  taps.stride = static_cast<int>(std::ceil(support)) * 2 + 1;
  const auto stride = static_cast<std::size_t>(taps.stride);
  taps.begin.resize(static_cast<std::size_t>(size));
  taps.count.resize(static_cast<std::size_t>(size));
  taps.weight.resize(static_cast<std::size_t>(size) * stride);
  std::vector<double> weight(stride);
  for (std::size_t i = 0; i < taps.begin.size(); ++i) {
    const double center = start + (static_cast<double>(i) + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(center - support + 0.5));
    const int end = std::min(input_size, static_cast<int>(center + support + 0.5));
    const int count = end - begin;
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      const double w = Kernel(filter, (k + begin - center + 0.5) * inverse);
      weight[static_cast<std::size_t>(k)] = w;
      sum += w;
    }
    taps.begin[i] = begin;
    taps.count[i] = count;
    for (int k = 0; k < count; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double w = sum != 0 ? weight[at] / sum : weight[at];
      const double fixed = w * (1 << kWeightBits);
      taps.weight[i * stride + at] = static_cast<std::int32_t>(w < 0 ? fixed - 0.5 : fixed + 0.5);
    }
  }
  return taps;
}

StatusOr<Image> Resize(const ImageView& image, int height, int width,
                       const ResizeOptions& options) {
  if (height < 1 || width < 1) {
    return InvalidArgumentError("an image of ", height, " x ", width,
                                " was asked for; both must be 1 or more");
  }
  const Box whole = {0, 0, static_cast<double>(image.height), static_cast<double>(image.width)};
  const Box box = options.box.value_or(whole);
  AIT_RETURN_IF_ERROR(CheckBox(box, image));
  try {
    if (options.filter == ResizeFilter::kNearest) return ResizeNearest(image, height, width, box);
    return ResizeSmoothly(image, height, width, options.filter, box);
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("no memory to resize an image of ", image.height, " x ",
                                  image.width, " to ", height, " x ", width);
  }
}

}  // namespace ait::inline v0
