// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/simd_kernel.h"
#include "data/decode/resize_internal.h"

namespace ait::inline v0::internal {
namespace {

// Vector extensions of GCC and Clang: eight numbers at once, whatever the registers are.
using Bytes8 = std::uint8_t __attribute__((vector_size(8)));
using Ints8 = std::int32_t __attribute__((vector_size(32)));

AIT_INLINE void Load(const std::uint8_t* from, Ints8& to) {
  Bytes8 bytes;
  std::memcpy(&bytes, from, 8);
  to = __builtin_convertvector(bytes, Ints8);
}

AIT_INLINE void Store(const Ints8& sum, std::uint8_t* to) {
  Ints8 value = sum >> kWeightBits;
  value = value < 0 ? Ints8{} : value;
  value = value > 255 ? Ints8{} + 255 : value;
  const Bytes8 bytes = __builtin_convertvector(value, Bytes8);
  std::memcpy(to, &bytes, 8);
}

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

template <int kChannels>
AIT_INLINE void ColumnsOf(const std::uint8_t* columns, const Taps& taps, std::uint8_t* to) {
  const std::size_t size = taps.begin.size();
  for (std::size_t i = 0; i < size; ++i, to += kChannels * kStripRows) {
    const std::uint8_t* from = columns + std::ptrdiff_t{taps.begin[i]} * kChannels * kStripRows;
    const std::int32_t* weight = taps.weight.data() + i * static_cast<std::size_t>(taps.stride);
    Ints8 sum[kChannels];
    for (int c = 0; c < kChannels; ++c) sum[c] = Ints8{} + kHalf;
    for (int k = 0; k < taps.count[i]; ++k, from += kChannels * kStripRows) {
      for (int c = 0; c < kChannels; ++c) {
        Ints8 value;
        Load(from + c * kStripRows, value);
        sum[c] += value * weight[k];
      }
    }
    for (int c = 0; c < kChannels; ++c) Store(sum[c], to + c * kStripRows);
  }
}

AIT_INLINE void ResizeColumnsBody(const std::uint8_t* columns, int channels, const Taps& taps,
                                  std::uint8_t* to) {
  if (channels == 1) ColumnsOf<1>(columns, taps, to);
  if (channels == 3) ColumnsOf<3>(columns, taps, to);
  if (channels == 4) ColumnsOf<4>(columns, taps, to);
}

/// 8 * kVectors bytes of a row.
template <int kVectors>
AIT_INLINE void RowsOf(const std::uint8_t* first, std::ptrdiff_t row_bytes,
                       const std::int32_t* weight, int taps, std::uint8_t* to) {
  Ints8 sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = Ints8{} + kHalf;
  for (int k = 0; k < taps; ++k, first += row_bytes) {
    for (int v = 0; v < kVectors; ++v) {
      Ints8 value;
      Load(first + v * 8, value);
      sum[v] += value * weight[k];
    }
  }
  for (int v = 0; v < kVectors; ++v) Store(sum[v], to + v * 8);
}

AIT_INLINE void ResizeRowsBody(const std::uint8_t* first, std::ptrdiff_t row_bytes,
                               const std::int32_t* weight, int taps, std::ptrdiff_t count,
                               std::uint8_t* to) {
  std::ptrdiff_t i = 0;
  for (; i + 32 <= count; i += 32) RowsOf<4>(first + i, row_bytes, weight, taps, to + i);
  for (; i + 8 <= count; i += 8) RowsOf<1>(first + i, row_bytes, weight, taps, to + i);
  for (; i < count; ++i) {
    std::int32_t sum = kHalf;
    for (int k = 0; k < taps; ++k) sum += first[k * row_bytes + i] * weight[k];
    sum >>= kWeightBits;
    to[i] = static_cast<std::uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
  }
}

/// Exchanges the bits of `mask` << `shift` of `a` with those of `mask` of `b`.
AIT_INLINE void Exchange(std::uint64_t& a, std::uint64_t& b, int shift, std::uint64_t mask) {
  const std::uint64_t difference = ((a >> shift) ^ b) & mask;
  b ^= difference;
  a ^= difference << shift;
}

/// The transpose of 8 x 8 bytes; byte 0 is the least significant.
AIT_INLINE void Transpose(std::uint64_t (&row)[8]) {
  for (int i = 0; i < 8; i += 2) Exchange(row[i], row[i + 1], 8, 0x00FF00FF00FF00FF);
  for (int i = 0; i < 8; i += i % 4 == 1 ? 3 : 1) {
    Exchange(row[i], row[i + 2], 16, 0x0000FFFF0000FFFF);
  }
  for (int i = 0; i < 4; ++i) Exchange(row[i], row[i + 4], 32, 0x00000000FFFFFFFF);
}

}  // namespace

AIT_KERNEL(void, ResizeColumns,
           (const std::uint8_t* columns, int channels, const Taps& taps, std::uint8_t* to),
           (columns, channels, taps, to))
AIT_KERNEL(void, ResizeRows,
           (const std::uint8_t* first, std::ptrdiff_t row_bytes, const std::int32_t* weight,
            int taps, std::ptrdiff_t count, std::uint8_t* to),
           (first, row_bytes, weight, taps, count, to))

void ToColumns(const std::uint8_t* const rows[kStripRows], std::ptrdiff_t count,
               std::uint8_t* columns) {
  std::ptrdiff_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t block[8];
    for (int r = 0; r < 8; ++r) std::memcpy(&block[r], rows[r] + i, 8);
    Transpose(block);
    std::memcpy(columns + i * 8, block, 64);
  }
  for (; i < count; ++i) {
    for (int r = 0; r < 8; ++r) columns[i * 8 + r] = rows[r][i];
  }
}

void ToRows(const std::uint8_t* columns, std::ptrdiff_t count,
            std::uint8_t* const rows[kStripRows]) {
  std::ptrdiff_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t block[8];
    std::memcpy(block, columns + i * 8, 64);
    Transpose(block);
    for (int r = 0; r < 8; ++r) std::memcpy(rows[r] + i, &block[r], 8);
  }
  for (; i < count; ++i) {
    for (int r = 0; r < 8; ++r) rows[r][i] = columns[i * 8 + r];
  }
}

}  // namespace ait::inline v0::internal
