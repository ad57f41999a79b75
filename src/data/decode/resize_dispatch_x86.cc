// SPDX-License-Identifier: Apache-2.0
#include "ait/base/simd.h"
#include "data/decode/resize_internal.h"

namespace ait::inline v0::internal {

const ResizeKernels& ChooseResizeKernels() {
  return BestSimdLevel() >= SimdLevel::kAvx2 ? kResizeAvx2 : kResizeBaseline;
}

}  // namespace ait::inline v0::internal
