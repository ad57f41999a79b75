// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/cuda_adamw.h"

namespace ait::inline v0 {

StatusOr<std::unique_ptr<CudaAdamW>> CudaAdamW::Create(Device /*device*/,
                                                       AdamWOptions /*options*/) {
  return FailedPreconditionError(
      "no kernels for GPUs: ait was built without nvcc; install the CUDA toolkit and build again");
}

}  // namespace ait::inline v0
