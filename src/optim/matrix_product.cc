// SPDX-License-Identifier: Apache-2.0
#include "optim/matrix_product.h"

#include <algorithm>

#include "optim/whole_parameter_optimizer.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kMostTileRows = 12, kMostTileColumns = 32;

std::int64_t TilesOf(std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile; }

}  // namespace

std::size_t MatrixProduct::ScratchFloats(std::int64_t rows, std::int64_t k, std::int64_t columns) {
  return static_cast<std::size_t>(
      (RoundUp(rows, kMostTileRows) + kMostTileRows + RoundUp(columns, kMostTileColumns)) * k +
      kMostTileColumns);
}

// packed[(tile · k + i) · tile_rows + r] is left[tile · tile_rows + r][i]; rows beyond are 0.
void MatrixProduct::PackLeft(const float* left, std::int64_t rows, std::int64_t k,
                             float* packed) const {
  const std::int64_t height = kernels_.tile_rows;
  ForEachUnit(executor_, TilesOf(rows, height), height * k, [&](std::int64_t tile) {
    float* const out = packed + tile * height * k;
    for (std::int64_t r = 0; r < height; ++r) {
      const std::int64_t row = tile * height + r;
      for (std::int64_t i = 0; i < k; ++i) out[i * height + r] = row < rows ? left[row * k + i] : 0;
    }
  });
}

// packed[(tile · k + i) · tile_columns + c] is right[i][tile · tile_columns + c].
void MatrixProduct::PackRight(const float* right, std::int64_t k, std::int64_t columns,
                              float* packed) const {
  const std::int64_t width = kernels_.tile_columns;
  ForEachUnit(executor_, TilesOf(columns, width), width * k, [&](std::int64_t tile) {
    const std::int64_t first = tile * width;
    const std::int64_t size = std::min(width, columns - first);
    for (std::int64_t i = 0; i < k; ++i) {
      float* const out = packed + (tile * k + i) * width;
      std::copy_n(right + i * columns + first, size, out);
      std::fill(out + size, out + width, 0.0f);
    }
  });
}

void MatrixProduct::MultiplyPacked(const float* left, const float* right, std::int64_t rows,
                                   std::int64_t k, std::int64_t columns, float alpha, float beta,
                                   Symmetry symmetry, float* out) const {
  const std::int64_t height = kernels_.tile_rows, width = kernels_.tile_columns;
  const std::int64_t panels = TilesOf(columns, width);
  ForEachUnit(executor_, panels, rows * width, [&](std::int64_t unit) {
    // From both ends, so that halves of a symmetric product are equal work.
    const std::int64_t panel = unit % 2 == 0 ? unit / 2 : panels - 1 - unit / 2;
    const std::int64_t first_column = panel * width;
    const std::int64_t last_column = std::min(first_column + width, columns);
    const std::int64_t last_row = symmetry == Symmetry::kSymmetric ? last_column : rows;
    for (std::int64_t row = 0; row < last_row; row += height) {
      float tile[kMostTileRows * kMostTileColumns] = {};
      kernels_.product(left + row * k, right + first_column * k, k, tile);
      for (std::int64_t r = row; r < std::min(row + height, rows); ++r) {
        const float* const from = tile + (r - row) * width;
        float* const to = out + r * columns;
        for (std::int64_t c = first_column; c < last_column; ++c) {
          const float sum = alpha * from[c - first_column];
          to[c] = beta == 0 ? sum : beta * to[c] + sum;
        }
      }
    }
  });
  if (symmetry == Symmetry::kNone) return;
  ForEachUnit(executor_, rows, columns, [&](std::int64_t row) {
    for (std::int64_t c = 0; c < row; ++c) out[row * columns + c] = out[c * columns + row];
  });
}

void MatrixProduct::Multiply(const float* left, const float* right, std::int64_t rows,
                             std::int64_t k, std::int64_t columns, float alpha, float beta,
                             Symmetry symmetry, float* out, float* scratch) const {
  float* const packed_right = scratch;
  float* const packed_left = scratch + RoundUp(columns, kMostTileColumns) * k;
  PackLeft(left, rows, k, packed_left);
  PackRight(right, k, columns, packed_right);
  MultiplyPacked(packed_left, packed_right, rows, k, columns, alpha, beta, symmetry, out);
}

void MatrixProduct::Gram(const float* x, std::int64_t rows, std::int64_t k, float* out,
                         float* scratch) const {
  float* const packed_right = scratch;
  float* const packed_left = scratch + RoundUp(rows, kMostTileColumns) * k;
  PackLeft(x, rows, k, packed_left);
  const std::int64_t width = kernels_.tile_columns;
  ForEachUnit(executor_, TilesOf(rows, width), width * k, [&](std::int64_t tile) {
    float* const to = packed_right + tile * width * k;
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t row = tile * width + c;
      for (std::int64_t i = 0; i < k; ++i) to[i * width + c] = row < rows ? x[row * k + i] : 0;
    }
  });
  MultiplyPacked(packed_left, packed_right, rows, k, rows, 1, 0, Symmetry::kSymmetric, out);
}

}  // namespace ait::inline v0::internal
