// SPDX-License-Identifier: Apache-2.0
#include "data/decode/compress_internal.h"

namespace ait::inline v0::internal {

bool HasLz4() { return false; }

StatusOr<std::unique_ptr<Decompressor>> NewLz4Decompressor() {
  return UnimplementedError(
      "this build cannot unpack lz4 data: install liblz4-dev and build it again");
}

}  // namespace ait::inline v0::internal
