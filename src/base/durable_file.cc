// SPDX-License-Identifier: Apache-2.0
#include "ait/base/durable_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file_descriptor.h"

namespace ait::inline v0 {
namespace {

using internal::FileDescriptor;

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string FreeBytes(const std::string& directory) {
  struct statvfs info{};
  if (::statvfs(directory.c_str(), &info) != 0) return "unknown";
  return std::to_string(info.f_bavail * info.f_frsize);
}

/// True if `path` still names the file that is open.
bool IsStillNamed(int fd, const std::string& path) {
  struct stat open{}, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

Status SyncDirectory(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open())
    return ErrnoError(errno, "cannot open directory ", path, " to make it durable");
  // Some file systems cannot sync a directory and need not: they say EINVAL.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return ErrnoError(errno, "cannot fsync directory ", path);
  }
  return OkStatus();
}

}  // namespace

DurableFile::DurableFile(std::string path)
    : path_(std::move(path)), partial_path_(path_ + ".partial") {}

StatusOr<DurableFile> DurableFile::Create(std::string path) {
  DurableFile file(std::move(path));
  AIT_RETURN_IF_ERROR(file.Open());
  return file;
}

Status DurableFile::Open() {
  // A writer may rename its file away between our open and our lock; then the name is free again.
  for (int attempt = 0; attempt < 100; ++attempt) {
    FileDescriptor fd(
        ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd.is_open()) return ErrnoError(errno, "cannot create ", partial_path_);
    // File systems without locks say so; then two writers at once are the user's care.
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return FailedPreconditionError("somebody else is writing ", path_,
                                     "; wait for it to end, or choose another path");
    }
    if (IsStillNamed(fd.get(), partial_path_)) {
      fd_ = fd.Release();  // from here on the partial file is ours to remove
      if (::ftruncate(fd_, 0) != 0) return ErrnoError(errno, "cannot empty ", partial_path_);
      return OkStatus();
    }
  }
  return UnavailableError(partial_path_, " is being replaced again and again by somebody else");
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_path_(std::move(other.partial_path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_),
      reserved_bytes_(other.reserved_bytes_) {}

DurableFile& DurableFile::operator=(DurableFile&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    partial_path_ = std::move(other.partial_path_);
    fd_ = std::exchange(other.fd_, -1);
    size_bytes_ = other.size_bytes_;
    reserved_bytes_ = other.reserved_bytes_;
  }
  return *this;
}

DurableFile::~DurableFile() { Discard(); }

void DurableFile::Discard() {
  if (fd_ < 0) return;
  ::unlink(partial_path_.c_str());  // before the lock goes with the descriptor
  ::close(std::exchange(fd_, -1));
}

Status DurableFile::Reserve(Bytes size) {
  if (fd_ < 0) return FailedPreconditionError(path_, " is not open for writing");
  if (size.value() <= reserved_bytes_) return OkStatus();
  if (const int error = ::posix_fallocate(fd_, 0, size.value()); error != 0) {
    const std::string directory = DirectoryOf(path_);
    return ErrnoError(error, "no room for ", path_, ": ", size, " bytes are needed, free in ",
                      directory, " are ", FreeBytes(directory));
  }
  reserved_bytes_ = size.value();
  return OkStatus();
}

Status DurableFile::WriteAt(std::int64_t offset_bytes, std::span<const std::byte> bytes) {
  if (fd_ < 0) return FailedPreconditionError(path_, " is not open for writing");
  while (!bytes.empty()) {
    // Linux writes at most 2 GiB at once; 1 GiB keeps the pieces aligned.
    const std::size_t piece = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
    const ssize_t written = ::pwrite(fd_, bytes.data(), piece, offset_bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "cannot write ", bytes.size(), " bytes at offset ", offset_bytes,
                        " of ", path_, "; nothing was stored under that name");
    }
    offset_bytes += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return OkStatus();
}

Status DurableFile::Append(std::span<const std::byte> bytes) {
  AIT_RETURN_IF_ERROR(WriteAt(size_bytes_, bytes));
  size_bytes_ += static_cast<std::int64_t>(bytes.size());
  return OkStatus();
}

Status DurableFile::Overwrite(std::int64_t offset_bytes, std::span<const std::byte> bytes) {
  const auto length = static_cast<std::int64_t>(bytes.size());
  if (offset_bytes < 0 || length > size_bytes_ || offset_bytes > size_bytes_ - length) {
    return OutOfRangeError("cannot overwrite ", length, " bytes at offset ", offset_bytes, " of ",
                           path_, ": it has ", size_bytes_);
  }
  return WriteAt(offset_bytes, bytes);
}

Status DurableFile::Commit() {
  if (fd_ < 0) return FailedPreconditionError(path_, " is not open for writing");
  if (reserved_bytes_ > size_bytes_ && ::ftruncate(fd_, size_bytes_) != 0)
    return ErrnoError(errno, "cannot cut ", partial_path_, " to its size");
  // After a failed fsync the page cache no longer tells what is on the disk: give up, never retry.
  if (::fsync(fd_) != 0)
    return ErrnoError(errno, "cannot fsync ", partial_path_, "; ", path_, " is unchanged");
  if (::rename(partial_path_.c_str(), path_.c_str()) != 0)
    return ErrnoError(errno, "cannot rename ", partial_path_, " to ", path_,
                      ", which is unchanged");
  const int close_error = ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
  if (Status synced = SyncDirectory(DirectoryOf(path_)); !synced.ok()) {
    return Annotate(synced, StrCat(path_, " is replaced, but may not be after a crash"));
  }
  if (close_error != 0) return ErrnoError(close_error, "cannot close ", path_, ", now replaced");
  return OkStatus();
}

Status WriteFileDurably(const std::string& path, std::string_view contents) {
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  AIT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(contents.data(), contents.size()))));
  return file.Commit();
}

Status MakeDirectoryDurably(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    return S_ISDIR(info.st_mode) ? OkStatus() : InvalidArgumentError(path, " is not a directory");
  }
  const std::string parent = DirectoryOf(path);
  if (!path.empty() && parent != path) AIT_RETURN_IF_ERROR(MakeDirectoryDurably(parent));
  // Another process may have made it meanwhile; "name/" was made as the parent of what is behind
  // the slash.
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
    return ErrnoError(errno, "cannot make directory \"", path, "\"");
  }
  return SyncDirectory(parent);
}

}  // namespace ait::inline v0
