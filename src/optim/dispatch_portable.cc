// SPDX-License-Identifier: Apache-2.0
#include "optim/kernels.h"

namespace ait::inline v0 {

const internal::Kernels& internal::KernelsFor(SimdLevel /*cap*/) { return kBaselineKernels; }

}  // namespace ait::inline v0
