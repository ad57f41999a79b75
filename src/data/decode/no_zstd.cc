// SPDX-License-Identifier: Apache-2.0
#include "data/decode/compress_internal.h"

namespace ait::inline v0::internal {

bool HasZstd() { return false; }

StatusOr<std::unique_ptr<Decompressor>> NewZstdDecompressor() {
  return UnimplementedError(
      "this build cannot unpack zstd data: install libzstd-dev and build it again");
}

}  // namespace ait::inline v0::internal
