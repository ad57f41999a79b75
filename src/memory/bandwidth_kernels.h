// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_BANDWIDTH_KERNELS_H_
#define AIT_MEMORY_BANDWIDTH_KERNELS_H_

// The inner loops of bandwidth.h, one table of functions per SIMD level. All tables compute the
// same bits, but for the order in which `read` sums.

#include <cstdint>

namespace ait::inline v0 {
enum class SimdLevel;  // no header with inline functions here: see bandwidth_kernels.inc
}

namespace ait::inline v0::internal {

/// Arrays are aligned to kAlignment, `count` is a multiple of kStep.
struct BandwidthKernels {
  static constexpr std::int64_t kAlignment = 128;
  static constexpr std::int64_t kStep = 256;  // floats: 16 cache lines

  float (*read)(const float* b, std::int64_t count);
  void (*copy)(float* a, const float* b, std::int64_t count);
  void (*triad)(float* a, const float* b, const float* c, float factor, std::int64_t count);
};

/// The table of `cap`, or of the best level that the processor supports if that is lower.
const BandwidthKernels& BandwidthKernelsFor(SimdLevel cap);

extern const BandwidthKernels kBaselineBandwidthKernels;
extern const BandwidthKernels kAvx2BandwidthKernels;    // x86-64 only
extern const BandwidthKernels kAvx512BandwidthKernels;  // x86-64 only

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_BANDWIDTH_KERNELS_H_
