// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_SIMD_H_
#define AIT_BASE_SIMD_H_

// Which vector instructions the kernels of ait use (the optimizers, the reductions of collectives):
// chosen when the program runs, never when it is built.
//
// Every level computes the same bits: the kernels are one source compiled once per level, without
// contraction to fused multiply-add, without reassociation and with correctly rounded division and
// square root. The level is a matter of speed; capping it serves measurements, and processors that
// lower their clock under wide vectors.
//
//   AIT_ASSIGN_OR_RETURN(ait::SimdLevel level, ait::SimdLevelFromEnv(env));   // AIT_SIMD=avx2

#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0 {

struct Env;

/// From the least to the most capable; comparable with `<`.
enum class SimdLevel {
  kBaseline = 0,  // what the compiler's target has: SSE2 on x86-64, NEON on AArch64
  kAvx2 = 1,      // AVX2 and F16C
  kAvx512 = 2,    // AVX-512 F, VL, DQ and BW
};

/// "baseline", "avx2" or "avx512".
std::string_view Name(SimdLevel level);

/// The best level that this processor, the operating system and this build support.
SimdLevel BestSimdLevel();

/// The level of AIT_SIMD, a cap: never above `BestSimdLevel`, which is the level if it is unset.
/// **Errors.** InvalidArgument if AIT_SIMD is none of the names above.
StatusOr<SimdLevel> SimdLevelFromEnv(const Env& env);

}  // namespace ait::inline v0

#endif  // AIT_BASE_SIMD_H_
