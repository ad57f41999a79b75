// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_HALF_H_
#define AIT_COMM_HALF_H_

// Arrays of fp16 and bf16 to fp32 and back, with the instructions that the processor has.

#include <cstdint>

#include "ait/base/float16.h"
#include "ait/base/simd.h"

namespace ait::inline v0::internal {

/// Converts `count` elements; the arrays do not overlap. Rounds like `Float16` and `BFloat16`; the
/// payload of a NaN may differ. `max_level` is for tests, as in reduce.h.
void ToFloat(const Float16* from, float* to, std::int64_t count,
             SimdLevel max_level = SimdLevel::kAvx512);
void ToFloat(const BFloat16* from, float* to, std::int64_t count,
             SimdLevel max_level = SimdLevel::kAvx512);
void FromFloat(const float* from, Float16* to, std::int64_t count,
               SimdLevel max_level = SimdLevel::kAvx512);
void FromFloat(const float* from, BFloat16* to, std::int64_t count,
               SimdLevel max_level = SimdLevel::kAvx512);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_HALF_H_
