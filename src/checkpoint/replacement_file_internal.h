// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CHECKPOINT_REPLACEMENT_FILE_INTERNAL_H_
#define AIT_CHECKPOINT_REPLACEMENT_FILE_INTERNAL_H_

// A file that replaces another whole or not at all, whatever ends the process or the machine.
//
// The bytes go to `<path>.partial` in the same directory, whose space is reserved first; `Commit`
// brings them to the disk (fsync), renames the file to its final name and brings the directory to
// the disk. Until then the old file stays as it was. Without a commit the partial file is removed;
// what a killed process left behind is overwritten by the next save to the same path.
//
//   AIT_ASSIGN_OR_RETURN(auto file, ReplacementFile::Create(path, Bytes(text.size())));
//   AIT_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
//   AIT_RETURN_IF_ERROR(file.Commit());
//
// **Thread-safety.** One thread at a time. Two writers of one path at a time are refused.

#include <cstddef>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0::internal {

class ReplacementFile {
 public:
  /// Opens the partial file and reserves `size` bytes, all that will be written. The directory must
  /// exist.
  /// **Errors.** ResourceExhausted: no room, with the bytes asked for and those free; nothing has
  /// been changed. FailedPrecondition: somebody else is writing this path. Else by errno.
  static StatusOr<ReplacementFile> Create(std::string path, Bytes size);

  ReplacementFile(ReplacementFile&& other) noexcept;
  ReplacementFile& operator=(ReplacementFile&& other) noexcept;
  /// Removes the partial file if it was not committed.
  ~ReplacementFile();

  /// Writes the next bytes.
  /// **Errors.** OutOfRange: more than `size`; ResourceExhausted and others by errno.
  Status Write(std::span<const std::byte> bytes);

  /// Makes the file durable under its final name. Call it once; the object is of no use after.
  /// **Errors.** FailedPrecondition: fewer bytes than `size` were written; else by errno. The old
  /// file is untouched if the error comes before the rename, which the text tells.
  Status Commit();

  const std::string& path() const { return path_; }

 private:
  ReplacementFile(std::string path, Bytes size);
  Status Open();
  Status Reserve();

  std::string path_;
  std::string partial_;
  Bytes size_;
  Bytes written_;
  int file_ = -1;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_CHECKPOINT_REPLACEMENT_FILE_INTERNAL_H_
