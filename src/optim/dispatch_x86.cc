// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ait/base/simd.h"
#include "optim/kernels.h"
#include "optim/storage_kernels.h"

namespace ait::inline v0::internal {
namespace {

template <typename Table>
const Table& Choose(SimdLevel cap, const Table& baseline, const Table& avx2, const Table& avx512) {
  switch (std::min(cap, BestSimdLevel())) {
    case SimdLevel::kAvx512:
      return avx512;
    case SimdLevel::kAvx2:
      return avx2;
    case SimdLevel::kBaseline:
      break;
  }
  return baseline;
}

}  // namespace

const Kernels& KernelsFor(SimdLevel cap) {
  return Choose(cap, kBaselineKernels, kAvx2Kernels, kAvx512Kernels);
}

const StorageKernels& StorageKernelsFor(SimdLevel cap) {
  return Choose(cap, kBaselineStorageKernels, kAvx2StorageKernels, kAvx512StorageKernels);
}

}  // namespace ait::inline v0::internal
