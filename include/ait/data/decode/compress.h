// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_COMPRESS_H_
#define AIT_DATA_DECODE_COMPRESS_H_

// Unpacks gzip, zlib, Zstandard and LZ4 frames, whole or piece by piece, with a limit.
//
// A few kilobytes of compressed zeros unpack to gigabytes, so every call that makes memory has a
// limit. Several members or frames one after the other (`cat a.gz b.gz`) are one file; bytes that
// belong to none are an error, and so is an end in the middle: a file cut short is never taken for
// a whole one. Checksums of the formats (CRC-32 and size of gzip, Adler-32 of zlib, the XXH64 of
// Zstandard and the XXH32 of LZ4 where they are present) are verified.
//
//   AIT_ASSIGN_OR_RETURN(ByteView text, Decompress(Compression::kZstd, packed, Bytes(1 << 30)));
//
//   AIT_ASSIGN_OR_RETURN(auto unpacker, Decompressor::Create(Compression::kGzip));
//   AIT_ASSIGN_OR_RETURN(DecompressStep step, unpacker->Run(input, output));
//
// Zstandard and LZ4 need their libraries at build time; `IsAvailable` says whether they are there.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/data/byte_view.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

enum class Compression : std::uint8_t {
  kNone,
  kGzip,  // RFC 1952, one member or several
  kZlib,  // RFC 1950
  kZstd,  // RFC 8878, frames and skippable frames; windows of at most 128 MiB
  kLz4,   // LZ4 frames, not bare blocks
};

/// "none", "gzip", "zlib", "zstd" or "lz4".
std::string_view Name(Compression compression);

/// What these first bytes of a file are by their magic number; zlib has none that is sure, and is
/// never guessed.
Compression CompressionOf(std::span<const std::byte> head);

/// Whether this build can unpack it.
bool IsAvailable(Compression compression);

/// `name` without ".gz", ".zst", ".zstd" or ".lz4" at its end.
std::string_view WithoutCompressionSuffix(std::string_view name);

struct DecompressStep {
  std::size_t consumed = 0;  // bytes of the input that were used
  std::size_t produced = 0;  // bytes of the output that were filled
};

/// Unpacks piece by piece. **Thread-safety.** One thread at a time.
class Decompressor {
 public:
  /// **Errors.** InvalidArgument: kNone; Unimplemented: the build lacks the library.
  static StatusOr<std::unique_ptr<Decompressor>> Create(Compression compression);
  virtual ~Decompressor() = default;

  /// Unpacks until the input is used up or the output is full. Call it again with what is left. A
  /// step with an output that is not full has used all the input that was there.
  /// **Errors.** DataLoss: damaged; ResourceExhausted. After an error every call fails.
  virtual StatusOr<DecompressStep> Run(std::span<const std::byte> input,
                                       std::span<std::byte> output) = 0;
  /// Whether the input so far ends where a member or frame does, so that the file may end here.
  virtual bool is_complete() const = 0;
};

/// Unpacks a whole file in memory.
/// **Errors.** DataLoss: damaged or cut short; ResourceExhausted: more than `limit`; else as
/// `Decompressor::Create`.
StatusOr<ByteView> Decompress(Compression compression, std::span<const std::byte> packed,
                              Bytes limit);

/// An object like `packed` but unpacked, in memory; it keeps the URL and the version. **Blocks.**
/// Reads all of `packed`. **Errors.** As `Decompress`, with the URL; those of the object.
StatusOr<std::shared_ptr<const StoredObject>> Unpack(const StoredObject& packed,
                                                     Compression compression, Bytes limit);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_COMPRESS_H_
