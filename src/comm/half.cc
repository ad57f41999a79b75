// SPDX-License-Identifier: Apache-2.0
#include "comm/half.h"

#include "ait/base/simd.h"
#include "comm/reduce_kernels.h"

namespace ait::inline v0::internal {

// The kernels take the bits, of which the two types consist.

void ToFloat(const Float16* from, float* to, std::int64_t count, SimdLevel max_level) {
  ReduceKernelsFor(max_level).float16_to_float(&from->bits, to, count);
}

void ToFloat(const BFloat16* from, float* to, std::int64_t count, SimdLevel max_level) {
  ReduceKernelsFor(max_level).bfloat16_to_float(&from->bits, to, count);
}

void FromFloat(const float* from, Float16* to, std::int64_t count, SimdLevel max_level) {
  ReduceKernelsFor(max_level).float_to_float16(from, &to->bits, count);
}

void FromFloat(const float* from, BFloat16* to, std::int64_t count, SimdLevel max_level) {
  ReduceKernelsFor(max_level).float_to_bfloat16(from, &to->bits, count);
}

}  // namespace ait::inline v0::internal
