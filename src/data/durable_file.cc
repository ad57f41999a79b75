// SPDX-License-Identifier: Apache-2.0
#include "ait/data/durable_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace ait::inline v0 {
namespace {

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status SyncDirectory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "cannot open directory ", path, " to make it durable");
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some file systems cannot sync a directory and need not: they say EINVAL.
  if (error != 0 && error != EINVAL) return ErrnoError(error, "cannot fsync directory ", path);
  return OkStatus();
}

}  // namespace

StatusOr<DurableFile> DurableFile::Create(const std::string& path) {
  static std::atomic<std::uint64_t> counter = 0;
  for (;;) {
    std::string temporary = StrCat(path, ".tmp-", ::getpid(), "-", counter.fetch_add(1));
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return DurableFile(path, std::move(temporary), fd);
    // A dead process of the same number may have left that name; the next one is free.
    if (errno != EEXIST && errno != EINTR) return ErrnoError(errno, "cannot create ", temporary);
  }
}

DurableFile::DurableFile(std::string path, std::string temporary_path, int fd)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), fd_(fd) {}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::move(other.temporary_path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

DurableFile& DurableFile::operator=(DurableFile&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    temporary_path_ = std::move(other.temporary_path_);
    fd_ = std::exchange(other.fd_, -1);
    size_bytes_ = other.size_bytes_;
  }
  return *this;
}

DurableFile::~DurableFile() { Discard(); }

void DurableFile::Discard() {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  ::unlink(temporary_path_.c_str());
}

Status DurableFile::WriteAt(std::int64_t offset_bytes, std::span<const std::byte> bytes) {
  if (fd_ < 0) return FailedPreconditionError(path_, " is not open for writing");
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset_bytes);
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
  if (::fsync(fd_) != 0) return ErrnoError(errno, "cannot fsync ", temporary_path_);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return ErrnoError(errno, "cannot rename ", temporary_path_, " to ", path_);
  }
  ::close(std::exchange(fd_, -1));
  return SyncDirectory(DirectoryOf(path_));
}

Status WriteFileDurably(const std::string& path, std::string_view contents) {
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  AIT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(contents.data(), contents.size()))));
  return file.Commit();
}

Status MakeDirectoryDurably(const std::string& path) {
  struct stat info;
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
