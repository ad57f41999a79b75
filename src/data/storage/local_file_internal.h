// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_LOCAL_FILE_INTERNAL_H_
#define AIT_DATA_STORAGE_LOCAL_FILE_INTERNAL_H_

// A regular file that is open, and whether it is still the one that was opened.

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"
#include "base/file_descriptor.h"

namespace ait::inline v0::internal {

/// The path of a URL: itself, or what follows file://.
/// **Errors.** InvalidArgument: another scheme, or no path.
StatusOr<std::string> PathOf(const std::string& url);

/// Size and version of a file of this path. **Errors.** InvalidArgument: not a regular file.
StatusOr<ObjectInfo> InfoOf(const std::string& url, const std::string& path,
                            const struct stat& stat);

/// When to look whether a file has changed.
struct CheckPolicy {
  std::chrono::nanoseconds interval{};
  std::int64_t large_bytes = 0;  // reads of so many bytes look each time
};

/// **Thread-safety.** All calls may come from any thread.
class LocalFile {
 public:
  static StatusOr<std::shared_ptr<LocalFile>> Open(const std::string& url);
  LocalFile(std::string path, FileDescriptor fd, ObjectInfo info, const struct stat& stat);
  ~LocalFile();
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;

  const ObjectInfo& info() const { return info_; }
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  std::uint64_t device() const { return stat_.st_dev; }
  /// Before the file is shared.
  void SetPolicy(CheckPolicy policy);

  /// Fills `out`, which must lie within the size; then looks as the policy says.
  /// **Errors.** As StoredObject::ReadAt.
  Status Read(std::int64_t offset_bytes, std::span<std::byte> out) const;
  /// The same without looking, by the descriptor `fd` of this file.
  Status ReadUnchecked(std::int64_t offset_bytes, std::span<std::byte> out, int fd) const;
  Status ReadUnchecked(std::int64_t offset_bytes, std::span<std::byte> out) const {
    return ReadUnchecked(offset_bytes, out, fd_.get());
  }
  /// Looks, if the policy says so after a read of so many bytes that ends there.
  Status CheckAfter(std::int64_t end_bytes, std::int64_t length_bytes) const;
  /// Looks at the open file.
  Status CheckOpen() const;
  /// Looks, at the open file and at its path.
  Status Check() const;
  /// A second descriptor of the same file, opened with flags beside O_RDONLY, such as O_DIRECT.
  StatusOr<FileDescriptor> OpenAgain(int flags) const;

 private:
  // What a file of unchanged contents may look like: others may link, rename, or allow it meanwhile.
  struct Attributes {
    struct stat stat;
    const Attributes* earlier;
  };

  Status Compare(const struct stat& now) const;
  // Whether what changed its ctime since the last look was not its contents.
  bool IsKnown(const struct stat& now) const;

  const std::string path_;
  const FileDescriptor fd_;
  const ObjectInfo info_;
  const struct stat stat_;
  mutable std::atomic<const Attributes*> attributes_;  // owned, with all earlier ones
  CheckPolicy policy_;
  mutable std::atomic<std::int64_t> next_check_;  // in nanoseconds of the coarse clock
};

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_STORAGE_LOCAL_FILE_INTERNAL_H_
