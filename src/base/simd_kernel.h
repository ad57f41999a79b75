// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_SIMD_KERNEL_H_
#define AIT_BASE_SIMD_KERNEL_H_

// Functions that are compiled twice and chosen when the program runs.
//
//   AIT_INLINE void AddToBody(float* to, const float* from, int n) { … }
//   AIT_KERNEL(void, AddTo, (float* to, const float* from, int n), (to, from, n))
//
// Defines `name` from `name`Body, once for the baseline and once with AVX2. Nothing else changes:
// -ffp-contract=off is to hold for the file.
#define AIT_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define AIT_KERNEL(result, name, parameters, arguments)                                         \
  namespace {                                                                                   \
  __attribute__((target("avx2"))) result name##Avx2 parameters { return name##Body arguments; } \
  }                                                                                             \
  result name parameters {                                                                      \
    return ::ait::internal::HasAvx2() ? name##Avx2 arguments : name##Body arguments;            \
  }
#else
#define AIT_KERNEL(result, name, parameters, arguments) \
  result name parameters { return name##Body arguments; }
#endif

namespace ait::inline v0::internal {

#if defined(__x86_64__)
inline bool HasAvx2() { return __builtin_cpu_supports("avx2") != 0; }
#endif

}  // namespace ait::inline v0::internal

#endif  // AIT_BASE_SIMD_KERNEL_H_
