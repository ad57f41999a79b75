// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/storage/local_file_internal.h"

namespace ait::inline v0::internal {
namespace {

// Of the clock that costs no more than a load: right to a few milliseconds.
std::int64_t CoarseNow() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::int64_t Nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t ChangedAt(const struct stat& stat) { return Nanoseconds(stat.st_mtim); }

// Where the path leads also if the working directory changes.
std::string Absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::current_path(error);
  return error ? path : (directory / path).string();
}

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

StatusOr<std::string> PathOf(const std::string& url) {
  constexpr std::string_view kScheme = "file://";
  std::string path = url;
  if (url.starts_with(kScheme)) {
    path = url.substr(kScheme.size());
    if (!path.starts_with('/')) {
      return InvalidArgumentError(url, " names a host; give file:/// and an absolute path");
    }
  } else if (const std::size_t colon = url.find("://");
             colon != std::string::npos && colon < url.find('/')) {
    return InvalidArgumentError(url, " is not a file: its scheme is ", url.substr(0, colon));
  }
  if (path.empty() || path.find('\0') != std::string::npos) {
    return InvalidArgumentError("\"", url, "\" is not a path");
  }
  return path;
}

StatusOr<ObjectInfo> InfoOf(const std::string& url, const std::string& path,
                            const struct stat& stat) {
  if (!S_ISREG(stat.st_mode)) {
    return InvalidArgumentError(path, " is ", KindOf(stat.st_mode), ", not a regular file");
  }
  return ObjectInfo{.url = url,
                    .size_bytes = stat.st_size,
                    .version = StrCat(stat.st_ino, "-", ChangedAt(stat), "-",
                                      Nanoseconds(stat.st_ctim), "-", stat.st_size)};
}

LocalFile::LocalFile(std::string path, FileDescriptor fd, ObjectInfo info, const struct stat& stat)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      info_(std::move(info)),
      stat_(stat),
      attributes_(new Attributes{stat, nullptr}),
      next_check_(0) {}

LocalFile::~LocalFile() {
  for (const Attributes* each = attributes_; each != nullptr;) {
    const Attributes* const earlier = each->earlier;
    delete each;
    each = earlier;
  }
}

void LocalFile::SetPolicy(CheckPolicy policy) {
  policy_ = policy;
  next_check_ = CoarseNow() + policy.interval.count();
}

StatusOr<std::shared_ptr<LocalFile>> LocalFile::Open(const std::string& url) {
  AIT_ASSIGN_OR_RETURN(std::string path, PathOf(url));
  // O_NONBLOCK, so that opening a pipe by mistake does not wait for its writer.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.is_open()) {
    const int error = errno;
    struct stat stat{};
    // A socket cannot be opened at all: say what it is.
    if (error == ENXIO && ::stat(path.c_str(), &stat) == 0) {
      AIT_RETURN_IF_ERROR(InfoOf(url, path, stat).status());
    }
    return ErrnoError(error, "cannot open ", path);
  }
  struct stat stat{};
  if (::fstat(fd.get(), &stat) != 0) return ErrnoError(errno, "cannot stat ", path);
  AIT_ASSIGN_OR_RETURN(ObjectInfo info, InfoOf(url, path, stat));
  return std::make_shared<LocalFile>(Absolute(path), std::move(fd), std::move(info), stat);
}

Status LocalFile::ReadUnchecked(std::int64_t offset_bytes, std::span<std::byte> out, int fd) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd, out.data(), out.size(), offset_bytes);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == ESTALE) {
        return AbortedError(path_, " was replaced or deleted on its server since it was opened");
      }
      return ErrnoError(errno, "cannot read ", out.size(), " bytes at offset ", offset_bytes,
                        " of ", path_);
    }
    if (count == 0) {
      return DataLossError(path_, " has become shorter: it ends at byte ", offset_bytes, ", ",
                           out.size(), " bytes before the end of a read; it had ", info_.size_bytes,
                           " bytes when it was opened");
    }
    offset_bytes += count;
    out = out.subspan(static_cast<std::size_t>(count));
  }
  return OkStatus();
}

Status LocalFile::Read(std::int64_t offset_bytes, std::span<std::byte> out) const {
  AIT_RETURN_IF_ERROR(ReadUnchecked(offset_bytes, out));
  const auto length = static_cast<std::int64_t>(out.size());
  return CheckAfter(offset_bytes + length, length);
}

Status LocalFile::CheckAfter(std::int64_t end_bytes, std::int64_t length_bytes) const {
  // The last read of a file that is read in parts looks at its path, too; one that is read at once
  // is of one file in any case.
  const bool is_end = end_bytes == info_.size_bytes;
  const bool is_whole = is_end && length_bytes == end_bytes;
  if ((is_end && !is_whole) || CoarseNow() >= next_check_.load(std::memory_order_relaxed)) {
    return Check();
  }
  return is_whole || length_bytes >= policy_.large_bytes ? CheckOpen() : OkStatus();
}

Status LocalFile::CheckOpen() const {
  struct stat now{};
  if (::fstat(fd_.get(), &now) != 0) return ErrnoError(errno, "cannot stat ", path_);
  return Compare(now);
}

Status LocalFile::Check() const {
  struct stat now{};
  if (::fstat(fd_.get(), &now) != 0) return ErrnoError(errno, "cannot stat ", path_);
  Status status = Compare(now);
  // What was deleted, or cannot be reached any more, is read on.
  if (status.ok() && ::stat(path_.c_str(), &now) == 0) {
    status = Compare(now);
    if (status.ok() && (now.st_ino != stat_.st_ino || now.st_dev != stat_.st_dev)) {
      status = AbortedError(path_, " was replaced by another file since it was opened (inode ",
                            stat_.st_ino, ", now ", now.st_ino, ")");
    }
  }
  // After an error every read looks, so that the file stays an error.
  next_check_.store(status.ok() ? CoarseNow() + policy_.interval.count() : 0,
                    std::memory_order_relaxed);
  return status;
}

bool LocalFile::IsKnown(const struct stat& now) const {
  const Attributes* latest = attributes_.load(std::memory_order_acquire);
  while (true) {
    const std::int64_t changed = Nanoseconds(now.st_ctim);
    for (const Attributes* each = latest; each != nullptr; each = each->earlier) {
      if (changed == Nanoseconds(each->stat.st_ctim)) return true;
    }
    const struct stat& then = latest->stat;
    const bool is_explained = now.st_nlink != then.st_nlink || now.st_mode != then.st_mode ||
                              now.st_uid != then.st_uid || now.st_gid != then.st_gid;
    struct stat named{};
    if (!is_explained && ::stat(path_.c_str(), &named) == 0 && named.st_ino == stat_.st_ino &&
        named.st_dev == stat_.st_dev) {
      return false;  // nor was it renamed
    }
    auto added = std::make_unique<Attributes>(now, latest);
    if (attributes_.compare_exchange_strong(latest, added.get(), std::memory_order_acq_rel)) {
      static_cast<void>(added.release());
      return true;
    }
  }
}

Status LocalFile::Compare(const struct stat& now) const {
  const bool is_same_file = now.st_ino == stat_.st_ino && now.st_dev == stat_.st_dev;
  if (now.st_size == stat_.st_size && ChangedAt(now) == ChangedAt(stat_)) {
    if (!is_same_file || IsKnown(now)) return OkStatus();
    next_check_.store(0, std::memory_order_relaxed);
    return AbortedError(path_, " was written to and given its old time of change again, or its ",
                        "attributes were set, since it was opened (ctime ",
                        Nanoseconds(now.st_ctim), " ns, was ", Nanoseconds(stat_.st_ctim),
                        "); files must not change while they are read");
  }
  next_check_.store(0, std::memory_order_relaxed);
  if (is_same_file && now.st_size < stat_.st_size) {
    return DataLossError(path_, " has become shorter: ", now.st_size, " bytes, it had ",
                         stat_.st_size, " when it was opened");
  }
  return AbortedError(path_, is_same_file ? " was written to" : " was replaced by another file",
                      " since it was opened: ", now.st_size, " bytes, time of change ",
                      ChangedAt(now), " ns; it had ", stat_.st_size, " and ", ChangedAt(stat_),
                      "; files must not change while they are read");
}

StatusOr<FileDescriptor> LocalFile::OpenAgain(int flags) const {
  FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags));
  if (!fd.is_open())
    return ErrnoError(errno, "cannot open ", path_,
                      flags == O_DIRECT ? " with O_DIRECT" : " again");
  struct stat now{};
  if (::fstat(fd.get(), &now) != 0) return ErrnoError(errno, "cannot stat ", path_);
  if (now.st_ino != stat_.st_ino || now.st_dev != stat_.st_dev) {
    return AbortedError(path_, " was replaced by another file since it was opened");
  }
  return fd;
}

}  // namespace ait::inline v0::internal
