// SPDX-License-Identifier: Apache-2.0
#include "optim/whole_kernels.h"

namespace ait::inline v0 {

const internal::WholeKernels& internal::WholeKernelsFor(SimdLevel /*cap*/) {
  return kBaselineWholeKernels;
}

}  // namespace ait::inline v0
