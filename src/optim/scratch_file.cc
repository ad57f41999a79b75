// SPDX-License-Identifier: Apache-2.0
#include "optim/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace ait::inline v0::internal {
namespace {

std::string FileSystemName(int fd) {
  struct statfs info{};
  if (::fstatfs(fd, &info) != 0) return "unknown file system";
  switch (static_cast<std::uint64_t>(info.f_type)) {
    case EXT4_SUPER_MAGIC:
      return "ext4";
    case XFS_SUPER_MAGIC:
      return "xfs";
    case BTRFS_SUPER_MAGIC:
      return "btrfs";
    case F2FS_SUPER_MAGIC:
      return "f2fs";
    case TMPFS_MAGIC:
      return "tmpfs, which is memory";
    case OVERLAYFS_SUPER_MAGIC:
      return "overlay";
    case NFS_SUPER_MAGIC:
      return "nfs, which is not local";
    case FUSE_SUPER_MAGIC:
      return "fuse";
    default:
      return StrCat("file system of type ", info.f_type);
  }
}

// A file that no name leads to.
StatusOr<FileDescriptor> OpenNameless(const std::string& directory, std::string_view what,
                                      std::string_view option) {
  FileDescriptor fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.is_open()) return fd;
  // File systems without it, and kernels before 3.11, say one of these.
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
    std::string path = directory + "/ait-scratch-XXXXXX";
    FileDescriptor named(::mkostemp(path.data(), O_CLOEXEC));
    if (named.is_open()) {
      if (::unlink(path.c_str()) == 0) return named;
      return ErrnoError(errno, "cannot remove the name of ", path);
    }
  }
  return ErrnoError(errno, "cannot make a file for ", what, " in ", directory, "; ", option,
                    " must be a directory that this process may write to");
}

std::string FreeBytes(int fd) {
  struct statvfs info{};
  if (::fstatvfs(fd, &info) != 0) return "unknown";
  return StrCat(static_cast<std::int64_t>(info.f_bavail * info.f_frsize));
}

std::string WhyNoUring(const Status& status) {
  std::string why = Message(status);
  if (status.code() == StatusCode::kPermissionDenied) {
    why += " (a seccomp filter, or the sysctl kernel.io_uring_disabled)";
  }
  return why;
}

// Writes and reads the first page, which is zeros before and after.
Status Probe(FileIo& io, std::byte* page) {
  for (const auto kind : {FileRequest::Kind::kWrite, FileRequest::Kind::kRead}) {
    FileRequest request{.kind = kind, .data = page, .bytes = kScratchPage};
    AIT_RETURN_IF_ERROR(io.Start(request));
    while (!request.done) AIT_RETURN_IF_ERROR(io.WaitForAny());
    if (request.error > 0) {
      return ErrnoError(request.error, kind == FileRequest::Kind::kRead ? "reading" : "writing");
    }
    if (request.error != 0) return DataLossError("the file ends before its first page does");
  }
  return OkStatus();
}

}  // namespace

StatusOr<ScratchFile> OpenScratchFile(const std::string& directory, std::string_view what,
                                      std::string_view option) {
  ScratchFile file{.fd = {}, .what = std::string(what), .place = {}};
  AIT_ASSIGN_OR_RETURN(file.fd, OpenNameless(directory, what, option));
  file.place = StrCat(directory, " (", FileSystemName(file.fd.get()), ")");
  return file;
}

Status ReserveScratch(const ScratchFile& file, std::int64_t bytes) {
  const int fd = file.fd.get();
  // Beyond this limit the kernel would kill the process.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    return ResourceExhaustedError("no room for ", file.what, " in ", file.place, ": ", bytes,
                                  " bytes are needed, and the limit of a file (ulimit -f) is ",
                                  static_cast<std::int64_t>(limit.rlim_cur));
  }
  int error = 0;
  do {
    error = ::posix_fallocate(fd, 0, bytes);
  } while (error == EINTR);
  if (error == 0) return OkStatus();
  const Status failed = ErrnoError(error, "no room for ", file.what, " in ", file.place, ": ",
                                   bytes, " bytes are needed, free are ", FreeBytes(fd));
  return failed;
}

StatusOr<ScratchIo> OpenScratchIo(const ScratchFile& file, const ScratchIoOptions& options) {
  const int fd = file.fd.get();
  const int flags = ::fcntl(fd, F_GETFL);
  std::string caching = "O_DIRECT";
  std::string reasons;
  const auto buffer = [&](std::string_view why) {
    caching = "buffered";
    reasons += StrCat(reasons.empty() ? ", because " : ", and because ", why);
    return ::fcntl(fd, F_SETFL, flags) == 0;
  };
  if (options.buffered) {
    buffer("it was asked for");
  } else if (::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) {
    buffer(StrCat("the file system has no O_DIRECT (", Message(ErrnoError(errno, "fcntl")), ")"));
  }
  std::vector<std::unique_ptr<FileIo>> candidates;
  if (options.io) {
    candidates.push_back(options.io(fd));
  } else {
    auto ring = OpenUring(fd, options.depth);
    if (ring.ok()) {
      candidates.push_back(*std::move(ring));
    } else {
      reasons +=
          StrCat(reasons.empty() ? ", because " : ", and because ", WhyNoUring(ring.status()));
    }
    candidates.push_back(OpenFileThread(fd));
  }
  Status probed;
  for (std::unique_ptr<FileIo>& io : candidates) {
    probed = Probe(*io, options.page);
    if (probed.code() == StatusCode::kInvalidArgument && caching == "O_DIRECT") {
      buffer(StrCat("the file system refuses O_DIRECT (", Message(probed), ")"));
      probed = Probe(*io, options.page);
    }
    if (probed.ok()) {
      std::string description = StrCat(file.place, ": ", io->name(), ", ", caching, reasons);
      return ScratchIo{.io = std::move(io),
                       .buffered = caching == "buffered",
                       .description = std::move(description)};
    }
    reasons += StrCat(reasons.empty() ? ", because " : ", and because ", io->name(),
                      " failed: ", Message(probed));
  }
  return Annotate(probed, StrCat(file.what, " in ", file.place));
}

}  // namespace ait::inline v0::internal
