// SPDX-License-Identifier: Apache-2.0
// The null twin of cuda_api.cc, for builds without the CUDA toolkit.
#include "device/device_api.h"

namespace ait::inline v0::internal {

StatusOr<std::unique_ptr<DeviceApi>> OpenCuda(const std::string&) {
  return FailedPreconditionError(
      "no GPU: ait was built without CUDA; install the CUDA toolkit and build with "
      "-DAIT_WITH_CUDA=ON");
}

}  // namespace ait::inline v0::internal
