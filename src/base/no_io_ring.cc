// SPDX-License-Identifier: Apache-2.0
// The twin of io_ring.cc where ait is built without liburing.
#include "base/io_ring.h"

namespace ait::inline v0::internal {

StatusOr<std::unique_ptr<IoRing>> IoRing::Open(int, Threads) {
  return UnimplementedError("ait was built without liburing");
}

}  // namespace ait::inline v0::internal
