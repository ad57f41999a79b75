// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/replacement_file_internal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace ait::inline v0::internal {
namespace {

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// "12345", or "unknown".
std::string FreeBytes(const std::string& directory) {
  struct statvfs info{};
  if (::statvfs(directory.c_str(), &info) != 0) return "unknown";
  return std::to_string(info.f_bavail * info.f_frsize);
}

/// True if `path` still names the file that is open.
bool IsStillNamed(int file, const std::string& path) {
  struct stat open{}, named{};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

Status SyncDirectory(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return ErrnoError(errno, "cannot open the directory ", path);
  // Some file systems cannot synchronise a directory and say EINVAL; there is nothing more to do.
  const int error = ::fsync(directory) == 0 || errno == EINVAL ? 0 : errno;
  ::close(directory);
  return error == 0 ? OkStatus() : ErrnoError(error, "cannot synchronise the directory ", path);
}

}  // namespace

ReplacementFile::ReplacementFile(std::string path, Bytes size)
    : path_(std::move(path)), partial_(path_ + ".partial"), size_(size) {}

StatusOr<ReplacementFile> ReplacementFile::Create(std::string path, Bytes size) {
  if (size.value() < 0) return InvalidArgumentError(path, ": the size ", size, " is negative");
  ReplacementFile file(std::move(path), size);
  AIT_RETURN_IF_ERROR(file.Open());
  AIT_RETURN_IF_ERROR(file.Reserve());
  return file;
}

Status ReplacementFile::Open() {
  // A writer may rename its file away between our open and our lock; then the name is free again.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int file = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) return ErrnoError(errno, "cannot create ", partial_);
    if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(file);
      return FailedPreconditionError("somebody else is writing ", path_,
                                     "; give each run its own directory");
    }
    if (IsStillNamed(file, partial_)) {
      file_ = file;  // from here on the partial file is ours to remove
      if (::ftruncate(file_, 0) != 0) return ErrnoError(errno, "cannot empty ", partial_);
      return OkStatus();
    }
    ::close(file);
  }
  return UnavailableError(partial_, " is being replaced again and again by somebody else");
}

Status ReplacementFile::Reserve() {
  if (size_.value() == 0) return OkStatus();
  const int error = ::posix_fallocate(file_, 0, size_.value());
  if (error == 0) return OkStatus();
  const std::string directory = DirectoryOf(path_);
  return ErrnoError(error, "no room for ", path_, ": ", size_, " bytes are needed, free in ",
                    directory, " are ", FreeBytes(directory));
}

ReplacementFile::ReplacementFile(ReplacementFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      size_(other.size_),
      written_(other.written_),
      file_(std::exchange(other.file_, -1)) {}

ReplacementFile& ReplacementFile::operator=(ReplacementFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(size_, other.size_);
  std::swap(written_, other.written_);
  std::swap(file_, other.file_);
  return *this;
}

ReplacementFile::~ReplacementFile() {
  if (file_ < 0) return;
  ::unlink(partial_.c_str());  // before the lock goes with the descriptor
  ::close(file_);
}

Status ReplacementFile::Write(std::span<const std::byte> bytes) {
  if (file_ < 0) return FailedPreconditionError(path_, " has been committed already");
  if (static_cast<std::int64_t>(bytes.size()) > size_.value() - written_.value()) {
    return OutOfRangeError(path_, ": ", written_, " of ", size_, " bytes are written, ",
                           bytes.size(), " more do not fit");
  }
  while (!bytes.empty()) {
    // Linux writes at most 2 GiB at once; 1 GiB keeps the pieces aligned.
    const std::size_t piece = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
    const ssize_t written = ::write(file_, bytes.data(), piece);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      return ErrnoError(errno, "cannot write ", partial_, " (", path_, " is unchanged)");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    written_ = Bytes(written_.value() + written);
  }
  return OkStatus();
}

Status ReplacementFile::Commit() {
  if (file_ < 0) return FailedPreconditionError(path_, " has been committed already");
  if (written_ != size_) {
    return FailedPreconditionError(path_, ": only ", written_, " of ", size_, " bytes are written");
  }
  // After a failed fsync the page cache no longer tells what is on the disk: give up, never retry.
  if (::fsync(file_) != 0)
    return ErrnoError(errno, "cannot bring ", partial_, " to the disk (", path_, " is unchanged)");
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    return ErrnoError(errno, "cannot rename ", partial_, " to ", path_, " (which is unchanged)");
  }
  const int close_error = ::close(std::exchange(file_, -1)) == 0 ? 0 : errno;
  AIT_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(path_)));
  if (close_error != 0)
    return ErrnoError(close_error, "cannot close ", path_, ", which is replaced");
  return OkStatus();
}

}  // namespace ait::inline v0::internal
