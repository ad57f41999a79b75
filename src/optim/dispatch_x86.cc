// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ait/base/simd.h"
#include "optim/kernels.h"

namespace ait::inline v0 {

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
