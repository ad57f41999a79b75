// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_FILE_IO_INTERNAL_H_
#define AIT_DATA_CACHE_FILE_IO_INTERNAL_H_

// Whole reads and writes at offsets, and locks that vanish with the process that holds them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

/// Fills `out`. **Errors.** DataLoss: the file ends before; else by errno.
Status ReadFully(int fd, std::int64_t offset, std::span<std::byte> out);
Status WriteFully(int fd, std::int64_t offset, std::span<const std::byte> bytes);

/// Locks of an open file description (fcntl F_OFD_SETLK): they belong to whoever opened the file,
/// exclude other openers in the same process too, and end when the last descriptor is closed.
enum class LockKind { kShared, kExclusive };

/// Takes a lock on [offset, offset + length). False: somebody else has one in its way.
/// **Errors.** Unimplemented: the file system has no such locks; else by errno.
StatusOr<bool> TryLockRange(int fd, std::int64_t offset, std::int64_t length, LockKind kind);
void UnlockRange(int fd, std::int64_t offset, std::int64_t length);

/// Random bits for names and marks; not for secrets.
std::uint64_t RandomBits();

/// Free bytes of the file system of `path` for this user.
StatusOr<std::int64_t> FreeBytesAt(const std::string& path);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_FILE_IO_INTERNAL_H_
