// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "data/decode/jpeg_internal.h"

namespace ait::inline v0::internal {
namespace {

[[noreturn]] void OnError(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  (*errors->base.format_message)(info, errors->text);
  std::longjmp(errors->jump, 1);
}

void OnMessage(j_common_ptr info, int level) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  if (level < 0 && !errors->accepts_warnings) OnError(info);
}

void OnOutput(j_common_ptr) {}

}  // namespace

void JpegErrors::Install(bool accept_warnings) {
  jpeg_std_error(&base);
  base.error_exit = OnError;
  base.emit_message = OnMessage;
  base.output_message = OnOutput;
  accepts_warnings = accept_warnings;
  text[0] = '\0';
}

int ExifOrientation(std::span<const std::uint8_t> marker) {
  constexpr std::size_t kPrefix = 6;
  if (marker.size() < kPrefix + 8 || std::memcmp(marker.data(), "Exif\0\0", kPrefix) != 0) return 1;
  const std::span<const std::uint8_t> tiff = marker.subspan(kPrefix);
  const bool is_little = tiff[0] == 'I' && tiff[1] == 'I';
  if (!is_little && !(tiff[0] == 'M' && tiff[1] == 'M')) return 1;
  const auto number = [&](std::size_t at, int size) {
    std::uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      const std::uint32_t byte = tiff[at + static_cast<std::size_t>(i)];
      value |= byte << 8 * (is_little ? i : size - 1 - i);
    }
    return value;
  };
  const std::size_t directory = number(4, 4);
  if (directory > tiff.size() - 2) return 1;
  const std::size_t room = (tiff.size() - directory - 2) / 12;
  const std::size_t count = std::min<std::size_t>(number(directory, 2), room);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t entry = directory + 2 + i * 12;
    if (number(entry, 2) != 0x0112 || number(entry + 2, 2) != 3) continue;  // Orientation, SHORT
    const std::uint32_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace ait::inline v0::internal
