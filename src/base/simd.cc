// SPDX-License-Identifier: Apache-2.0
#include "ait/base/simd.h"

#include <algorithm>

#include "ait/base/env.h"

namespace ait::inline v0 {

std::string_view Name(SimdLevel level) {
  switch (level) {
    case SimdLevel::kBaseline:
      return "baseline";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

SimdLevel BestSimdLevel() {
#if defined(__x86_64__)
  // The run-time support of GCC and Clang asks CPUID and also whether the system saves the
  // registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) {
    return SimdLevel::kBaseline;
  }
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return has_avx512 ? SimdLevel::kAvx512 : SimdLevel::kAvx2;
#else
  return SimdLevel::kBaseline;
#endif
}

StatusOr<SimdLevel> SimdLevelFromEnv(const Env& env) {
  if (!env.ait_simd.has_value()) return BestSimdLevel();
  for (SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (*env.ait_simd == Name(level)) return std::min(level, BestSimdLevel());
  }
  return InvalidArgumentError("AIT_SIMD is \"", *env.ait_simd,
                              "\"; set it to baseline, avx2 or avx512, or unset it");
}

}  // namespace ait::inline v0
