// SPDX-License-Identifier: Apache-2.0
#include "optim/kernels.h"
#include "optim/storage_kernels.h"

namespace ait::inline v0::internal {

const Kernels& KernelsFor(SimdLevel /*cap*/) { return kBaselineKernels; }
const StorageKernels& StorageKernelsFor(SimdLevel /*cap*/) { return kBaselineStorageKernels; }

}  // namespace ait::inline v0::internal
