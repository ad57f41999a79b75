// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_REDUCE_KERNELS_H_
#define AIT_COMM_REDUCE_KERNELS_H_

// The inner loops of reduce.h and half.h, one table of functions per SIMD level. All tables compute
// the same bits, but for the payload of NaNs.

#include <cstdint>

namespace ait::inline v0 {
enum class SimdLevel;  // no header with inline functions here: see reduce_kernels.inc
}

namespace ait::inline v0::internal {

enum ReduceElement : int {
  kElementUInt8,
  kElementInt8,
  kElementUInt16,
  kElementInt16,
  kElementUInt32,
  kElementInt32,
  kElementInt64,
  kElementFloat16,
  kElementBFloat16,
  kElementFloat32,
  kElementFloat64,
  kElementCount,
};

enum ReduceAction : int {
  kActionSum,
  kActionAverage,
  kActionMax,
  kActionMin,
  kActionProduct,
  kActionCount,
};

/// As `ReduceRanks`; at least one input and one output. `streaming`: no output is an input, write
/// past the caches where that is possible.
using ReduceKernel = void(const void* const* inputs, std::int64_t input_count, void* const* outputs,
                          std::int64_t output_count, std::int64_t count, bool streaming);

struct ReduceKernels {
  ReduceKernel* reduce[kElementCount][kActionCount];  // null: the average of integers
  void (*copy_streaming)(void* to, const void* from, std::int64_t bytes);
  void (*float16_to_float)(const std::uint16_t* from, float* to, std::int64_t count);
  void (*bfloat16_to_float)(const std::uint16_t* from, float* to, std::int64_t count);
  void (*float_to_float16)(const float* from, std::uint16_t* to, std::int64_t count);
  void (*float_to_bfloat16)(const float* from, std::uint16_t* to, std::int64_t count);
};

/// The table of `cap`, or of the best level that the processor supports if that is lower.
const ReduceKernels& ReduceKernelsFor(SimdLevel cap);

extern const ReduceKernels kBaselineReduceKernels;
extern const ReduceKernels kAvx2ReduceKernels;    // x86-64 only
extern const ReduceKernels kAvx512ReduceKernels;  // x86-64 only

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_REDUCE_KERNELS_H_
