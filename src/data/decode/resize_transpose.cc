// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "data/decode/resize_internal.h"

namespace ait::inline v0::internal {
namespace {

/// Exchanges the bits of `mask` << `shift` of `a` with those of `mask` of `b`.
inline void Exchange(std::uint64_t& a, std::uint64_t& b, int shift, std::uint64_t mask) {
  const std::uint64_t difference = ((a >> shift) ^ b) & mask;
  b ^= difference;
  a ^= difference << shift;
}

/// The transpose of 8 x 8 bytes; byte 0 is the least significant.
inline void Transpose(std::uint64_t (&row)[8]) {
  for (int i = 0; i < 8; i += 2) Exchange(row[i], row[i + 1], 8, 0x00FF00FF00FF00FF);
  for (int i = 0; i < 8; i += i % 4 == 1 ? 3 : 1) {
    Exchange(row[i], row[i + 2], 16, 0x0000FFFF0000FFFF);
  }
  for (int i = 0; i < 4; ++i) Exchange(row[i], row[i + 4], 32, 0x00000000FFFFFFFF);
}

}  // namespace

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
