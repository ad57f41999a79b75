// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DURABLE_FILE_H_
#define AIT_DATA_DURABLE_FILE_H_

// A file that is either whole under its name or not there at all.
//
// Bytes go to a temporary name beside the final one ("NAME.tmp-PID-N"). `Commit` makes them
// durable, renames, and makes the name durable: fsync, rename, fsync of the directory. A process
// killed at any moment leaves the old file or the new one, never a part; what it may leave is the
// temporary name.
//
//   AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create("run/manifest.json"));
//   AIT_RETURN_IF_ERROR(file.Append(bytes));
//   return file.Commit();
//
// **Thread-safety.** One thread at a time for one object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0 {

class DurableFile {
 public:
  /// Opens a new temporary file in the directory of `path`, which must exist.
  /// **Errors.** NotFound, PermissionDenied or ResourceExhausted, as the system says.
  static StatusOr<DurableFile> Create(const std::string& path);

  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&& other) noexcept;
  /// Removes the temporary file unless it was committed.
  ~DurableFile();

  const std::string& path() const { return path_; }
  /// Bytes appended so far.
  std::int64_t size_bytes() const { return size_bytes_; }

  /// Writes at the end. **Errors.** ResourceExhausted if the disk or a quota is full.
  Status Append(std::span<const std::byte> bytes);
  /// Replaces bytes that were appended before, such as a header.
  Status Overwrite(std::int64_t offset_bytes, std::span<const std::byte> bytes);
  /// Gives the file its name, replacing a file of that name. Call once, as the last call.
  /// **Blocks.** Until the bytes and the name are on the disk.
  Status Commit();

 private:
  DurableFile(std::string path, std::string temporary_path, int fd);
  Status WriteAt(std::int64_t offset_bytes, std::span<const std::byte> bytes);
  void Discard();

  std::string path_;
  std::string temporary_path_;
  int fd_ = -1;
  std::int64_t size_bytes_ = 0;
};

/// Writes a whole small file durably: Create, Append, Commit.
Status WriteFileDurably(const std::string& path, std::string_view contents);

/// Makes a directory, and those above it that are missing, durably. It may exist already.
Status MakeDirectoryDurably(const std::string& path);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DURABLE_FILE_H_
