// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ait/optim/simd.h"
#include "optim/kernels.h"

namespace ait::inline v0 {

SimdLevel BestSimdLevel() {
  // The run-time support of GCC and Clang asks CPUID and also whether the system saves the
  // registers.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return SimdLevel::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? SimdLevel::kAvx2 : SimdLevel::kBaseline;
}

const internal::Kernels& internal::KernelsFor(SimdLevel cap) {
  switch (std::min(cap, BestSimdLevel())) {
    case SimdLevel::kAvx512:
      return kAvx512Kernels;
    case SimdLevel::kAvx2:
      return kAvx2Kernels;
    case SimdLevel::kBaseline:
      break;
  }
  return kBaselineKernels;
}

}  // namespace ait::inline v0
