// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_TEXT_READER_INTERNAL_H_
#define AIT_DATA_TEXT_READER_INTERNAL_H_

// The bytes of a text file, unpacked if it is gzip (RFC 1952; several members, and dictzip's, too).

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/input_file_internal.h"

namespace ait::inline v0 {
namespace internal {

class TextReader {
 public:
  static StatusOr<std::unique_ptr<TextReader>> Open(const std::string& path);
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;
  ~TextReader();

  /// Fills at most `out`, which is not empty; returns the number of bytes, 0 at the end.
  /// **Errors.** DataLoss: damaged or truncated gzip.
  StatusOr<std::size_t> Read(std::span<std::byte> out);

  /// CRC-32C of the file as it lies on the disk; complete at the end.
  std::uint32_t file_crc32c() const { return file_crc32c_; }

 private:
  explicit TextReader(InputFile file);
  Status Refill();
  StatusOr<std::size_t> Unpack(std::span<std::byte> out);
  Status SkipToNextMember();
  Status Damaged(const char* what) const;

  const InputFile file_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> input_;  // of buffer_: read, but not used
  std::int64_t offset_bytes_ = 0;     // of the file: read
  std::uint32_t file_crc32c_ = 0;
  bool is_gzip_ = false;
  bool is_between_members_ = false;
  z_stream zlib_ = {};  // not movable: zlib keeps a pointer to it
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_TEXT_READER_INTERNAL_H_
