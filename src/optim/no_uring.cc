// SPDX-License-Identifier: Apache-2.0
// The twin of uring.cc where ait is built without liburing.
#include "optim/file_io.h"

namespace ait::inline v0::internal {

StatusOr<std::unique_ptr<FileIo>> OpenUring(int, int) {
  return UnimplementedError("ait was built without liburing");
}

}  // namespace ait::inline v0::internal
