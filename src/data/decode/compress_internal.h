// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_COMPRESS_INTERNAL_H_
#define AIT_DATA_DECODE_COMPRESS_INTERNAL_H_

// The decompressors of libraries that a build may lack: each has a null twin, chosen by CMake.

#include <memory>

#include "ait/data/decode/compress.h"

namespace ait::inline v0 {
namespace internal {

/// nullptr: this build lacks the library.
StatusOr<std::unique_ptr<Decompressor>> NewZstdDecompressor();
StatusOr<std::unique_ptr<Decompressor>> NewLz4Decompressor();
bool HasZstd();
bool HasLz4();

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_COMPRESS_INTERNAL_H_
