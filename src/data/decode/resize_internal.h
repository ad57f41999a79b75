// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_RESIZE_INTERNAL_H_
#define AIT_DATA_DECODE_RESIZE_INTERNAL_H_

// One dimension of a resize: which inputs make an output, and with which weights.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ait/data/decode/resize.h"

namespace ait::inline v0::internal {

inline constexpr int kWeightBits = 22;  // as Pillow: 32 − 8 bits of a pixel − 2 of overshoot
inline constexpr int kStripRows = 8;    // that are resized horizontally together

/// Output i is the sum over k < count[i] of weight[i * stride + k] times input begin[i] + k.
struct Taps {
  int stride = 0;
  std::vector<int> begin;
  std::vector<int> count;
  std::vector<std::int32_t> weight;  // sums to about 2^kWeightBits
};

/// For `size` outputs from `length` inputs at `start` of `input_size`.
Taps MakeTaps(ResizeFilter filter, int input_size, double start, double length, int size);

/// Eight rows of `count` bytes become `count` columns of eight, and back.
void ToColumns(const std::uint8_t* const rows[kStripRows], std::ptrdiff_t count,
               std::uint8_t* columns);
void ToRows(const std::uint8_t* columns, std::ptrdiff_t count,
            std::uint8_t* const rows[kStripRows]);

/// The same, without functions.
struct TapsView {
  std::size_t size;
  int stride;
  const int* begin;
  const int* count;
  const std::int32_t* weight;
};

/// The inner loops at one level of vector instructions; all levels make the same bytes.
struct ResizeKernels {
  /// All outputs of eight rows: columns (width, channels, 8) to columns of the taps' size.
  void (*columns)(const std::uint8_t* columns, int channels, const TapsView& taps,
                  std::uint8_t* to);
  /// One row of `count` bytes: the weighted sum of `taps` rows, `row_bytes` from each other.
  void (*rows)(const std::uint8_t* first, std::ptrdiff_t row_bytes, const std::int32_t* weight,
               int taps, std::ptrdiff_t count, std::uint8_t* to);
};
extern const ResizeKernels kResizeBaseline;
extern const ResizeKernels kResizeAvx2;  // on x86-64 only
/// The best for this processor.
const ResizeKernels& ChooseResizeKernels();

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_DECODE_RESIZE_INTERNAL_H_
