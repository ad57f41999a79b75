// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_INPUT_FILE_INTERNAL_H_
#define AIT_DATA_INPUT_FILE_INTERNAL_H_

// A regular file, read at offsets. Not a mapping: a mapped file that shrinks kills the process.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "ait/base/status.h"
#include "base/file_descriptor.h"

namespace ait::inline v0 {
namespace internal {

/// **Thread-safety.** Reads may come from any thread.
class InputFile {
 public:
  /// **Errors.** InvalidArgument: not a regular file; else as the system says.
  static StatusOr<InputFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t size_bytes() const { return size_bytes_; }

  /// The version that a storage gives this file (ObjectInfo), as it is now.
  StatusOr<std::string> Version() const;

  /// Fills `out` from `offset_bytes`. **Errors.** DataLoss: the file ends before.
  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, FileDescriptor fd, std::int64_t size_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), size_bytes_(size_bytes) {}

  std::string path_;
  FileDescriptor fd_;
  std::int64_t size_bytes_;
};

/// CRC-32C of `length_bytes` bytes from `offset_bytes`.
StatusOr<std::uint32_t> Crc32cOfFile(const InputFile& file, std::int64_t offset_bytes,
                                     std::int64_t length_bytes);

/// The whole of a small file as text. **Errors.** InvalidArgument: larger than `limit_bytes`.
StatusOr<std::string> ReadSmallFile(const std::string& path, std::int64_t limit_bytes);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_INPUT_FILE_INTERNAL_H_
