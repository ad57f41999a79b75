// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_SHELF_INTERNAL_H_
#define AIT_DATA_CACHE_SHELF_INTERNAL_H_

// Where the files of a tier stand: a directory that processes share, or memory of this one.
//
// Files are opened anew each time, so that locks of open files tell who uses one. A directory holds
//
//   control         bytes in use, number of the last use (tier.cc)
//   new             an entry that is being made, by whoever holds the lock of `control`
//   objects/ab/…    entries, by the first two digits of their names

#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "ait/topology/system_roots.h"
#include "base/file_descriptor.h"
#include "data/cache/part_map_internal.h"

namespace ait::inline v0 {
namespace internal {

class CacheShelf {
 public:
  virtual ~CacheShelf() = default;

  /// For messages.
  virtual const std::string& name() const = 0;
  /// Open for reading and writing, as long as the shelf lives.
  virtual int control_fd() const = 0;
  /// Whether what is written may be lost when the machine stops, unless it is synced.
  virtual bool needs_sync() const = 0;
  virtual StatusOr<std::int64_t> FreeBytes() const = 0;
  /// Entries that it can hold at once; those of memory take a descriptor each.
  virtual std::size_t max_entries() const { return std::numeric_limits<std::size_t>::max(); }

  /// An entry, as a new open file. **Errors.** NotFound; else by errno.
  virtual StatusOr<FileDescriptor> Open(const std::string& entry) const = 0;
  /// Whether an open file still stands on the shelf.
  virtual bool IsOnShelf(const std::string& entry, int fd) const = 0;
  /// Makes an entry without parts, last used by use number `use`. Under the lock of `control`.
  virtual Status Make(const std::string& entry, PartMapHeader header, std::uint64_t use) = 0;
  virtual Status Remove(const std::string& entry) = 0;
  /// All entries, in no order, with what each has allocated; also those that cannot be opened.
  /// **Errors.** By errno: not all could be seen.
  virtual Status List(
      const std::function<void(const std::string& entry, std::int64_t bytes)>& visit) const = 0;
};

/// A directory, made if it does not exist. `in_memory`: it must be on a tmpfs. `must_be_own`: it is
/// this user's and nobody else may write it, for a name that anybody could have taken.
StatusOr<std::unique_ptr<CacheShelf>> DirectoryShelf(const std::string& path, bool in_memory,
                                                     bool must_be_own);
/// Files without a name (memfd_create).
StatusOr<std::unique_ptr<CacheShelf>> PrivateShelf();

/// Memory that this process and its cgroups leave, as far as it is known.
std::int64_t FreeMemoryBytes(const SystemRoots& roots = {});

/// "<64 hexadecimal digits>-<number>".
bool IsEntryName(std::string_view name);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_SHELF_INTERNAL_H_
