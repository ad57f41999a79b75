// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "ait/base/float16.h"
#include "ait/data/decode/image_ops.h"

namespace ait::inline v0 {
namespace {

/// A byte has 256 values, so that each channel is a table: one rounding, no arithmetic.
template <typename T>
using Tables = std::array<std::array<T, 256>, 4>;

template <typename T>
Tables<T> MakeTables(const Normalization& normalization) {
  Tables<T> tables;
  for (std::size_t c = 0; c < 4; ++c) {
    for (std::size_t value = 0; value < 256; ++value) {
      const float unit = static_cast<float>(value) / 255.0F;
      tables[c][value] = T((unit - normalization.mean[c]) / normalization.deviation[c]);
    }
  }
  return tables;
}

template <typename T, int kChannels>
void Write(const ImageView& image, const Tables<T>& tables, Layout layout, T* to) {
  const std::ptrdiff_t plane = std::ptrdiff_t{image.height} * image.width;
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* from = image.Row(y);
    const std::ptrdiff_t row = std::ptrdiff_t{y} * image.width;
    if (layout == Layout::kHwc) {
      T* out = to + row * kChannels;
      for (int x = 0; x < image.width; ++x, from += kChannels, out += kChannels) {
        for (int c = 0; c < kChannels; ++c) out[c] = tables[static_cast<std::size_t>(c)][from[c]];
      }
    } else {
      for (int c = 0; c < kChannels; ++c) {
        const auto& table = tables[static_cast<std::size_t>(c)];
        T* out = to + c * plane + row;
        for (int x = 0; x < image.width; ++x) out[x] = table[from[x * kChannels + c]];
      }
    }
  }
}

template <typename T>
void WriteAs(const ImageView& image, const Normalization& normalization, Layout layout,
             std::byte* to) {
  const Tables<T> tables = MakeTables<T>(normalization);
  T* out = reinterpret_cast<T*>(to);
  if (image.channels == 1) Write<T, 1>(image, tables, layout, out);
  if (image.channels == 3) Write<T, 3>(image, tables, layout, out);
  if (image.channels == 4) Write<T, 4>(image, tables, layout, out);
}

}  // namespace

Normalization ImageNetNormalization() {
  return {.mean = {0.485F, 0.456F, 0.406F, 0}, .deviation = {0.229F, 0.224F, 0.225F, 1}};
}

Status NormalizeInto(const ImageView& image, const Normalization& normalization, Layout layout,
                     DType dtype, std::span<std::byte> to) {
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16 && dtype != DType::kFloat16) {
    return InvalidArgumentError("images are normalised to float32, bfloat16 or float16, not to ",
                                Name(dtype));
  }
  for (int c = 0; c < image.channels; ++c) {
    if (normalization.deviation[static_cast<std::size_t>(c)] == 0) {
      return InvalidArgumentError("the deviation of channel ", c, " is 0");
    }
  }
  const std::int64_t count = std::int64_t{image.height} * image.width * image.channels;
  if (static_cast<std::int64_t>(to.size()) != count * SizeOf(dtype)) {
    return InvalidArgumentError("a normalised image of ", image.height, " x ", image.width, " x ",
                                image.channels, " takes ", count * SizeOf(dtype),
                                " bytes; there are ", to.size());
  }
  if (dtype == DType::kFloat32) WriteAs<float>(image, normalization, layout, to.data());
  if (dtype == DType::kBFloat16) WriteAs<BFloat16>(image, normalization, layout, to.data());
  if (dtype == DType::kFloat16) WriteAs<Float16>(image, normalization, layout, to.data());
  return OkStatus();
}

}  // namespace ait::inline v0
