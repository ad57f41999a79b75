// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_TOKEN_FILE_H_
#define AIT_DATA_TOKEN_FILE_H_

// The token file of ait: a checked header of 64 bytes and then the tokens, little-endian.
//
//   0   8  magic "AITTOKEN"
//   8   4  version, 1
//   12  1  dtype, the number in `DType`: 0 uint8, 10 uint16, 11 uint32
//   13  3  zero
//   16  8  vocabulary size; every token is less
//   24  8  number of tokens
//   32  4  CRC-32C of the tokens
//   36 24  zero
//   60  4  CRC-32C of bytes 0 to 59
//   64     tokens
//
// `TokenFileWriter` writes one; "ait/data/token_source.h" reads it, and other formats too. A corpus
// of many such files with a manifest is made by "ait/data/pack.h".
//
//   AIT_ASSIGN_OR_RETURN(auto writer, TokenFileWriter::Create("a.tokens", {.vocabulary_size =
//   50257})); AIT_RETURN_IF_ERROR(writer.Append(tokens)); return writer.Commit();
//
// **Thread-safety.** One thread at a time for one object.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/durable_file.h"
#include "ait/base/status.h"

namespace ait::inline v0 {

inline constexpr std::int64_t kTokenFileHeaderBytes = 64;

/// What the header of a token file says.
struct TokenFileHeader {
  DType dtype = DType::kUInt16;  // kUInt8, kUInt16 or kUInt32
  std::int64_t vocabulary_size = 0;
  std::int64_t token_count = 0;
  std::uint32_t crc32c = 0;  // of the tokens as they lie in the file

  bool operator==(const TokenFileHeader&) const = default;
};

/// The 64 bytes of a header.
std::array<std::byte, kTokenFileHeaderBytes> Encode(const TokenFileHeader& header);

/// Reads and checks the 64 bytes of a header.
/// **Errors.** DataLoss: wrong magic or checksum. Unimplemented: a newer version. InvalidArgument:
/// a field out of its range.
StatusOr<TokenFileHeader> DecodeTokenFileHeader(
    std::span<const std::byte, kTokenFileHeaderBytes> bytes);

struct TokenFileWriterOptions {
  DType dtype = DType::kUInt16;      // kUInt8, kUInt16 or kUInt32
  std::int64_t vocabulary_size = 0;  // required: 1 … 2^8, 2^16 or 2^32, by dtype
};

class TokenFileWriter {
 public:
  /// Starts a file; nothing has the name `path` before `Commit`.
  static StatusOr<TokenFileWriter> Create(const std::string& path, TokenFileWriterOptions options);

  /// Adds tokens. **Errors.** InvalidArgument: a token is not in the vocabulary (nothing is added).
  /// ResourceExhausted: the disk is full.
  Status Append(std::span<const std::uint32_t> tokens);
  /// Makes the file durable under its name and returns its header. Call once, as the last call.
  StatusOr<TokenFileHeader> Commit();

 private:
  TokenFileWriter(DurableFile file, TokenFileHeader header);

  DurableFile file_;
  TokenFileHeader header_;
  std::vector<std::byte> narrow_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_TOKEN_FILE_H_
