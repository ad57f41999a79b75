// SPDX-License-Identifier: Apache-2.0
#include "memory/streaming_floor.h"

#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ait::benchmarks {
namespace {

void CopyPlain(float* a, const float* b, const float*, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i];
}
void TriadPlain(float* a, const float* b, const float* c, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] + 3.0f * c[i];
}

#if defined(__x86_64__)
#define AIT_AVX512 __attribute__((target("avx512f")))
#define AIT_AVX2 __attribute__((target("avx2,fma")))

AIT_AVX512 void CopyStream512(float* a, const float* b, const float*, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 16) _mm512_stream_ps(a + i, _mm512_load_ps(b + i));
}
AIT_AVX512 void CopyPlain512(float* a, const float* b, const float*, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 16) _mm512_store_ps(a + i, _mm512_load_ps(b + i));
}
AIT_AVX512 void TriadStream512(float* a, const float* b, const float* c, std::size_t n) {
  const __m512 s = _mm512_set1_ps(3.0f);
  for (std::size_t i = 0; i < n; i += 16) {
    _mm512_stream_ps(a + i, _mm512_fmadd_ps(s, _mm512_load_ps(c + i), _mm512_load_ps(b + i)));
  }
}
AIT_AVX512 void TriadPlain512(float* a, const float* b, const float* c, std::size_t n) {
  const __m512 s = _mm512_set1_ps(3.0f);
  for (std::size_t i = 0; i < n; i += 16) {
    _mm512_store_ps(a + i, _mm512_fmadd_ps(s, _mm512_load_ps(c + i), _mm512_load_ps(b + i)));
  }
}
AIT_AVX2 void CopyStream256(float* a, const float* b, const float*, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 8) _mm256_stream_ps(a + i, _mm256_load_ps(b + i));
}
AIT_AVX2 void TriadStream256(float* a, const float* b, const float* c, std::size_t n) {
  const __m256 s = _mm256_set1_ps(3.0f);
  for (std::size_t i = 0; i < n; i += 8) {
    _mm256_stream_ps(a + i, _mm256_fmadd_ps(s, _mm256_load_ps(c + i), _mm256_load_ps(b + i)));
  }
}
bool Has(const char* which) {
  return which[3] == '5'
             ? __builtin_cpu_supports("avx512f") != 0
             : __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}
#endif

}  // namespace

std::vector<FloorKernel> FloorCopies() {
  std::vector<FloorKernel> kernels = {{"plain", CopyPlain}};
#if defined(__x86_64__)
  if (Has("avx2")) kernels.push_back({"avx2 streaming", CopyStream256});
  if (Has("avx512")) {
    kernels.push_back({"avx512 streaming", CopyStream512});
    kernels.push_back({"avx512 plain", CopyPlain512});
  }
#endif
  return kernels;
}

std::vector<FloorKernel> FloorTriads() {
  std::vector<FloorKernel> kernels = {{"plain", TriadPlain}};
#if defined(__x86_64__)
  if (Has("avx2")) kernels.push_back({"avx2 streaming", TriadStream256});
  if (Has("avx512")) {
    kernels.push_back({"avx512 streaming", TriadStream512});
    kernels.push_back({"avx512 plain", TriadPlain512});
  }
#endif
  return kernels;
}

double SecondsOf(const FloorKernel& kernel, int threads, float* a, const float* b, const float* c,
                 std::size_t n) {
  std::vector<std::thread> pool;
  const std::size_t span = n / static_cast<std::size_t>(threads) / 16 * 16;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t t = 0; t < static_cast<std::size_t>(threads); ++t) {
    pool.emplace_back(kernel.run, a + t * span, b + t * span, c + t * span, span);
  }
  for (std::thread& thread : pool) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace ait::benchmarks
