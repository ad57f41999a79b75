// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "data/cache/file_io_internal.h"

namespace ait::inline v0 {
namespace internal {

Status ReadFully(int fd, std::int64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "cannot read ", out.size(), " bytes at offset ", offset);
    }
    if (got == 0) return DataLossError("the file ends before offset ", offset);
    out = out.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return OkStatus();
}

Status WriteFully(int fd, std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "cannot write ", bytes.size(), " bytes at offset ", offset);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  return OkStatus();
}

StatusOr<bool> TryLockRange(int fd, std::int64_t offset, std::int64_t length, LockKind kind) {
  struct flock lock{};
  lock.l_type = kind == LockKind::kShared ? F_RDLCK : F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = length;
  while (::fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return false;
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) {
      return UnimplementedError("the file system has no locks of open files (F_OFD_SETLK)");
    }
    return ErrnoError(errno, "cannot lock ", length, " bytes at offset ", offset);
  }
  return true;
}

void UnlockRange(int fd, std::int64_t offset, std::int64_t length) {
  struct flock lock{};
  lock.l_type = F_UNLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = length;
  ::fcntl(fd, F_OFD_SETLK, &lock);
}

std::uint64_t RandomBits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) == sizeof bits) return bits;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<std::uint64_t>(now.tv_nsec) << 32) ^ static_cast<std::uint64_t>(now.tv_sec) ^
         (static_cast<std::uint64_t>(::getpid()) << 16);
}

StatusOr<std::int64_t> FreeBytesAt(const std::string& path) {
  struct statvfs info{};
  if (::statvfs(path.c_str(), &info) != 0)
    return ErrnoError(errno, "cannot ask the space of ", path);
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

}  // namespace internal
}  // namespace ait::inline v0
