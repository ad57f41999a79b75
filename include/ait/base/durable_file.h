// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_DURABLE_FILE_H_
#define AIT_BASE_DURABLE_FILE_H_

// A file that is whole under its name or not there at all, whatever ends the process or the
// machine.
//
// Bytes go to "<path>.partial" in the same directory. `Commit` brings them to the disk (fsync),
// renames the file and brings the name to the disk (fsync of the directory). Until then an old file
// of that name stays as it was. Without a commit the partial file is removed; one that a killed
// process left behind is used up by the next writer of the same path.
//
//   AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create("run/weights"));
//   AIT_RETURN_IF_ERROR(file.Reserve(Bytes(bytes.size())));
//   AIT_RETURN_IF_ERROR(file.Append(bytes));
//   return file.Commit();
//
// **Thread-safety.** One thread at a time for one object; a second writer of one path is refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

class DurableFile {
 public:
  /// Opens an empty partial file in the directory of `path`, which must exist.
  /// **Errors.** FailedPrecondition: somebody else is writing this path; else by errno.
  static StatusOr<DurableFile> Create(std::string path);

  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&& other) noexcept;
  /// Removes the partial file unless it was committed.
  ~DurableFile();

  const std::string& path() const { return path_; }
  /// Bytes appended so far.
  std::int64_t size_bytes() const { return size_bytes_; }

  /// Takes the space for `size` bytes in all, so that a full disk is noticed before the work.
  /// **Errors.** ResourceExhausted, with the bytes needed and those free.
  Status Reserve(Bytes size);
  /// Writes at the end. **Errors.** ResourceExhausted if the disk, a quota or a limit is full.
  Status Append(std::span<const std::byte> bytes);
  /// Replaces bytes that were appended before, such as a header.
  Status Overwrite(std::int64_t offset_bytes, std::span<const std::byte> bytes);
  /// Gives the file its name, replacing a file of that name. Call once, as the last call.
  /// **Blocks.** Until the bytes and the name are on the disk. **Errors.** By errno; the text says
  /// whether the old file has been replaced.
  Status Commit();

 private:
  explicit DurableFile(std::string path);
  Status Open();
  Status WriteAt(std::int64_t offset_bytes, std::span<const std::byte> bytes);
  void Discard();

  std::string path_;
  std::string partial_path_;
  int fd_ = -1;
  std::int64_t size_bytes_ = 0;
  std::int64_t reserved_bytes_ = 0;
};

/// Writes a whole small file durably: Create, Append, Commit.
Status WriteFileDurably(const std::string& path, std::string_view contents);

/// Makes a directory, and those above it that are missing, durably. It may exist already.
Status MakeDirectoryDurably(const std::string& path);

}  // namespace ait::inline v0

#endif  // AIT_BASE_DURABLE_FILE_H_
