// SPDX-License-Identifier: Apache-2.0
#include "comm/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ait::inline v0::internal {
namespace {

template <typename Half>
void ToFloatPlain(const Half* from, float* to, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = begin; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

template <typename Half>
void FromFloatPlain(const float* from, Half* to, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = begin; i < count; ++i) to[i] = static_cast<Half>(from[i]);
}

#if defined(__x86_64__)

bool HasF16c() { return __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("f16c") != 0; }

/// These two convert a multiple of 8 and return how many.
__attribute__((target("avx,f16c"))) std::int64_t ToFloatF16c(const Float16* from, float* to,
                                                             std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
  }
  return i;
}

__attribute__((target("avx,f16c"))) std::int64_t FromFloatF16c(const float* from, Float16* to,
                                                               std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half =
        _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
  }
  return i;
}

bool HasAvx2() { return __builtin_cpu_supports("avx2") != 0; }

// The plain loops, vectorised for wider registers.
__attribute__((target("avx2"))) void ToFloatAvx2(const BFloat16* from, float* to,
                                                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

__attribute__((target("avx2"))) void FromFloatAvx2(const float* from, BFloat16* to,
                                                   std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<BFloat16>(from[i]);
}

#else

bool HasAvx2() { return false; }
void ToFloatAvx2(const BFloat16*, float*, std::int64_t) {}
void FromFloatAvx2(const float*, BFloat16*, std::int64_t) {}
bool HasF16c() { return false; }
std::int64_t ToFloatF16c(const Float16*, float*, std::int64_t) { return 0; }
std::int64_t FromFloatF16c(const float*, Float16*, std::int64_t) { return 0; }

#endif

}  // namespace

void ToFloat(const Float16* from, float* to, std::int64_t count) {
  ToFloatPlain(from, to, HasF16c() ? ToFloatF16c(from, to, count) : 0, count);
}

void ToFloat(const BFloat16* from, float* to, std::int64_t count) {
  if (HasAvx2()) return ToFloatAvx2(from, to, count);
  ToFloatPlain(from, to, 0, count);
}

void FromFloat(const float* from, Float16* to, std::int64_t count) {
  FromFloatPlain(from, to, HasF16c() ? FromFloatF16c(from, to, count) : 0, count);
}

void FromFloat(const float* from, BFloat16* to, std::int64_t count) {
  if (HasAvx2()) return FromFloatAvx2(from, to, count);
  FromFloatPlain(from, to, 0, count);
}

}  // namespace ait::inline v0::internal
