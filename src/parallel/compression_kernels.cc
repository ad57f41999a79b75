// SPDX-License-Identifier: Apache-2.0
#include "parallel/compression_kernels_internal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/simd_kernel.h"

namespace ait::inline v0::internal::compression {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kRun = 512;  // elements that are summed in fp32
constexpr std::uint32_t kMagnitude = 0x7fffffffu;
constexpr std::uint32_t kInfinity = 0x7f800000u;

std::uint32_t Magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitude; }

AIT_INLINE double DotBody(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t begin = 0; begin < a.size(); begin += kRun) {
    const std::size_t end = std::min(a.size(), begin + kRun);
    float lanes[kLanes] = {};
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
    }
    for (; i < end; ++i) lanes[(i - begin) % kLanes] += a[i] * b[i];
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  return sum;
}

AIT_INLINE void AddToBody(std::span<float> to, std::span<const float> from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

AIT_INLINE void AddScaledBody(std::span<float> to, float factor, std::span<const float> from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

// `Many` vectors beginning at `vectors`; the compiler unrolls over them.
template <std::size_t Many>
AIT_INLINE void DotGroup(std::span<const float> row, const float* vectors, double* dots) {
  const std::size_t n = row.size();
  for (std::size_t k = 0; k < Many; ++k) dots[k] = 0;
  for (std::size_t begin = 0; begin < n; begin += kRun) {
    const std::size_t end = std::min(n, begin + kRun);
    float lanes[Many][kLanes] = {};
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t k = 0; k < Many; ++k) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          lanes[k][lane] += row[i + lane] * vectors[k * n + i + lane];
        }
      }
    }
    for (; i < end; ++i) {
      for (std::size_t k = 0; k < Many; ++k) {
        lanes[k][(i - begin) % kLanes] += row[i] * vectors[k * n + i];
      }
    }
    for (std::size_t k = 0; k < Many; ++k) {
      for (const float lane : lanes[k]) dots[k] += static_cast<double>(lane);
    }
  }
}

template <std::size_t Many>
AIT_INLINE void AddManyGroup(std::span<float> row, const float* __restrict factors,
                             const float* __restrict vectors) {
  const std::size_t n = row.size();
  float* const __restrict to = row.data();
  for (std::size_t i = 0; i < n; ++i) {
    float sum = to[i];
    for (std::size_t k = 0; k < Many; ++k) sum += factors[k] * vectors[k * n + i];
    to[i] = sum;
  }
}

template <std::size_t Many>
AIT_INLINE void AddToManyGroup(float* __restrict vectors, const float* __restrict factors,
                               std::span<const float> row) {
  const std::size_t n = row.size();
  const float* const __restrict from = row.data();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < Many; ++k) vectors[k * n + i] += factors[k] * from[i];
  }
}

AIT_INLINE void DotManyBody(std::span<const float> row, std::span<const float> vectors,
                            std::span<double> dots) {
  std::size_t k = 0;
  for (; k + 2 <= dots.size(); k += 2) {
    DotGroup<2>(row, vectors.data() + k * row.size(), &dots[k]);
  }
  if (k < dots.size()) DotGroup<1>(row, vectors.data() + k * row.size(), &dots[k]);
}

AIT_INLINE void AddManyScaledBody(std::span<float> row, std::span<const float> factors,
                                  std::span<const float> vectors) {
  const std::size_t n = row.size();
  std::size_t k = 0;
  for (; k + 4 <= factors.size(); k += 4) {
    AddManyGroup<4>(row, &factors[k], vectors.data() + k * n);
  }
  for (; k < factors.size(); ++k) AddManyGroup<1>(row, &factors[k], vectors.data() + k * n);
}

AIT_INLINE void AddScaledToManyBody(std::span<float> vectors, std::span<const float> factors,
                                    std::span<const float> row) {
  const std::size_t n = row.size();
  std::size_t k = 0;
  for (; k + 4 <= factors.size(); k += 4) {
    AddToManyGroup<4>(vectors.data() + k * n, &factors[k], row);
  }
  for (; k < factors.size(); ++k) AddToManyGroup<1>(vectors.data() + k * n, &factors[k], row);
}

AIT_INLINE double RoundToBf16Body(std::span<const float> from, std::span<BFloat16> to) {
  double lost = 0;
  for (std::size_t begin = 0; begin < from.size(); begin += kRun) {
    const std::size_t end = std::min(from.size(), begin + kRun);
    float errors[kRun];
    for (std::size_t i = begin; i < end; ++i) {
      to[i] = BFloat16(from[i]);
      errors[i - begin] = from[i] - static_cast<float>(to[i]);
    }
    lost += DotBody({errors, end - begin}, {errors, end - begin});
  }
  return lost;
}

AIT_INLINE void WidenBf16Body(std::span<const BFloat16> from, std::span<float> to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

AIT_KERNEL(double, Dot, (std::span<const float> a, std::span<const float> b), (a, b))
AIT_KERNEL(void, AddTo, (std::span<float> to, std::span<const float> from), (to, from))
AIT_KERNEL(void, AddScaled, (std::span<float> to, float factor, std::span<const float> from),
           (to, factor, from))
AIT_KERNEL(void, DotMany,
           (std::span<const float> row, std::span<const float> vectors, std::span<double> dots),
           (row, vectors, dots))
AIT_KERNEL(void, AddManyScaled,
           (std::span<float> row, std::span<const float> factors, std::span<const float> vectors),
           (row, factors, vectors))
AIT_KERNEL(void, AddScaledToMany,
           (std::span<float> vectors, std::span<const float> factors, std::span<const float> row),
           (vectors, factors, row))
AIT_KERNEL(double, RoundToBf16, (std::span<const float> from, std::span<BFloat16> to), (from, to))
AIT_KERNEL(void, WidenBf16, (std::span<const BFloat16> from, std::span<float> to), (from, to))

double Squares(std::span<const float> values) { return Dot(values, values); }

void SelectLargest(std::span<const float> values, std::int64_t count, std::uint32_t base,
                   SelectScratch& scratch, std::vector<std::uint32_t>& indices) {
  if (count <= 0) return;
  constexpr int kShift = 16;  // magnitudes of equal sign, exponent and 7 bits share a bin
  scratch.histogram.assign(std::size_t{1} << (31 - kShift), 0);
  for (const float value : values) ++scratch.histogram[Magnitude(value) >> kShift];
  std::int64_t above = 0;  // values in the bins over `bin`
  std::uint32_t bin = (1u << (31 - kShift)) - 1;
  while (above + scratch.histogram[bin] < count) above += scratch.histogram[bin--];
  const std::size_t first = indices.size();
  scratch.candidates.clear();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t its = Magnitude(values[i]) >> kShift;
    if (its < bin) continue;
    (its > bin ? indices : scratch.candidates).push_back(static_cast<std::uint32_t>(i));
  }
  const auto wanted = scratch.candidates.begin() + static_cast<std::ptrdiff_t>(count - above);
  std::nth_element(scratch.candidates.begin(), wanted, scratch.candidates.end(),
                   [&](std::uint32_t a, std::uint32_t b) {
                     const std::uint32_t x = Magnitude(values[a]);
                     const std::uint32_t y = Magnitude(values[b]);
                     return x != y ? x > y : a < b;
                   });
  indices.insert(indices.end(), scratch.candidates.begin(), wanted);
  std::sort(indices.begin() + static_cast<std::ptrdiff_t>(first), indices.end());
  for (std::size_t i = first; i < indices.size(); ++i) indices[i] += base;
}

void Orthonormalise(std::span<float> vectors, std::int64_t length) {
  constexpr double kDependent = 1e-5;  // what rounding leaves of a vector that depends on others
  const auto n = static_cast<std::size_t>(length);
  for (std::size_t begin = 0; begin + n <= vectors.size() && n > 0; begin += n) {
    const std::span<float> vector = vectors.subspan(begin, n);
    const float largest = LargestMagnitude(vector);
    if (largest == 0) continue;
    if (!std::isfinite(largest)) {
      std::fill(vectors.begin() + static_cast<std::ptrdiff_t>(begin), vectors.end(),
                std::numeric_limits<float>::quiet_NaN());
      return;
    }
    for (float& value : vector) value /= largest;  // no square overflows
    const double before = std::sqrt(Squares(vector));
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t other = 0; other < begin; other += n) {
        const std::span<const float> earlier = vectors.subspan(other, n);
        AddScaled(vector, static_cast<float>(-Dot(earlier, vector)), earlier);
      }
    }
    const double norm = std::sqrt(Squares(vector));
    if (norm <= kDependent * before) {
      std::fill(vector.begin(), vector.end(), 0.0f);
      continue;
    }
    const auto factor = static_cast<float>(1 / norm);
    for (float& value : vector) value *= factor;
  }
}

}  // namespace ait::inline v0::internal::compression
