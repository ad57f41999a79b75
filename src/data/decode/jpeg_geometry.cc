// SPDX-License-Identifier: Apache-2.0
// What needs no libjpeg: regions and scales.
#include "ait/data/decode/jpeg.h"

namespace ait::inline v0 {

Rect ScaledRect(const Rect& rect, int scale_eighths) {
  const std::int64_t m = scale_eighths;
  const auto down = [m](std::int64_t x) { return static_cast<int>(x * m / 8); };
  const auto up = [m](std::int64_t x) { return static_cast<int>((x * m + 7) / 8); };
  const int top = down(rect.top);
  const int left = down(rect.left);
  return {top, left, up(std::int64_t{rect.top} + rect.height) - top,
          up(std::int64_t{rect.left} + rect.width) - left};
}

int ScaleFor(const Rect& rect, int height, int width) {
  for (int m = 1; m < 8; ++m) {
    if (std::int64_t{rect.height} * m >= std::int64_t{height} * 8 &&
        std::int64_t{rect.width} * m >= std::int64_t{width} * 8) {
      return m;
    }
  }
  return 8;
}

}  // namespace ait::inline v0
