// SPDX-License-Identifier: Apache-2.0
#include "data/decode/resize_internal.h"

namespace ait::inline v0::internal {

const ResizeKernels& ChooseResizeKernels() { return kResizeBaseline; }

}  // namespace ait::inline v0::internal
