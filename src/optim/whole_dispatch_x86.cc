// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ait/base/simd.h"
#include "optim/whole_kernels.h"

namespace ait::inline v0 {

const internal::WholeKernels& internal::WholeKernelsFor(SimdLevel cap) {
  const SimdLevel level = std::min(cap, BestSimdLevel());
  if (level == SimdLevel::kBaseline || !__builtin_cpu_supports("fma")) return kBaselineWholeKernels;
  return level == SimdLevel::kAvx2 ? kAvx2WholeKernels : kAvx512WholeKernels;
}

}  // namespace ait::inline v0
