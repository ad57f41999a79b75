// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/simd.h"
#include "optim/kernels.h"

namespace ait::inline v0 {

SimdLevel BestSimdLevel() { return SimdLevel::kBaseline; }

const internal::Kernels& internal::KernelsFor(SimdLevel /*cap*/) { return kBaselineKernels; }

}  // namespace ait::inline v0
