// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "ait/base/durable_file.h"
#include "data/cache/file_io_internal.h"
#include "data/cache/shelf_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// From linux/magic.h, which lacks the last.
constexpr long kTmpfs = 0x01021994, kRamfs = 0x858458f6, kNfs = 0x6969, kSmb2 = 0xFE534D42,
               kLustre = 0x0BD00BD0;

class Directory final : public CacheShelf {
 public:
  Directory(std::string path, FileDescriptor control, bool in_memory)
      : path_(std::move(path)), control_(std::move(control)), in_memory_(in_memory) {}

  const std::string& name() const override { return path_; }
  int control_fd() const override { return control_.get(); }
  bool needs_sync() const override { return !in_memory_; }
  StatusOr<std::int64_t> FreeBytes() const override {
    AIT_ASSIGN_OR_RETURN(const std::int64_t free, FreeBytesAt(path_));
    // A tmpfs may be larger than what the cgroup leaves, which kills who fills it.
    return in_memory_ ? std::min(free, FreeMemoryBytes()) : free;
  }

  StatusOr<FileDescriptor> Open(const std::string& entry) const override {
    const std::string path = PathOf(entry);
    FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.is_open()) return ErrnoError(errno, "cannot open ", path);
    return fd;
  }

  bool IsOnShelf(const std::string&, int fd) const override {
    struct stat info{};
    return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
  }

  Status Make(const std::string& entry, PartMapHeader header, std::uint64_t use) override {
    const std::string path = PathOf(entry), temporary = path_ + "/new";
    // What a killed process left; we hold the lock without which nobody makes one.
    ::unlink(temporary.c_str());
    const FileDescriptor fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd.is_open()) return ErrnoError(errno, "cannot create ", temporary);
    Status made = WriteHeader(fd.get(), header, /*with_data=*/true);
    if (made.ok()) {
      made = WriteFully(fd.get(), kLastUseOffset, std::as_bytes(std::span(&use, 1)));
    }
    if (made.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
      // The directory of the first two digits is made when it is needed.
      const std::string parent = path.substr(0, path.rfind('/'));
      if (errno != ENOENT ||
          (::mkdir((path_ + "/objects").c_str(), 0777) != 0 && errno != EEXIST) ||
          (::mkdir(parent.c_str(), 0777) != 0 && errno != EEXIST) ||
          ::rename(temporary.c_str(), path.c_str()) != 0) {
        made = ErrnoError(errno, "cannot rename ", temporary, " to ", path);
      }
    }
    if (!made.ok()) ::unlink(temporary.c_str());
    return made;
  }

  Status Remove(const std::string& entry) override {
    const std::string path = PathOf(entry);
    if (::unlink(path.c_str()) != 0) return ErrnoError(errno, "cannot remove ", path);
    return OkStatus();
  }

  Status List(const std::function<void(const std::string&, std::int64_t)>& visit) const override {
    namespace fs = std::filesystem;
    const std::string objects = path_ + "/objects";
    std::error_code error;
    for (auto folder = fs::directory_iterator(objects, error);
         !error && folder != fs::directory_iterator(); folder.increment(error)) {
      const std::string prefix = folder->path().filename().string();
      if (prefix.size() != 2) continue;
      for (auto file = fs::directory_iterator(folder->path(), error);
           !error && file != fs::directory_iterator(); file.increment(error)) {
        const std::string name = file->path().filename().string();
        if (!IsEntryName(name) || !name.starts_with(prefix)) continue;
        struct stat info{};
        if (::lstat(file->path().c_str(), &info) == 0) {
          if (S_ISREG(info.st_mode)) visit(name, static_cast<std::int64_t>(info.st_blocks) * 512);
        } else if (errno != ENOENT) {
          return ErrnoError(errno, "cannot ask the size of ", file->path().string());
        }
      }
      // A file by the name of a folder is not ours, a folder that goes has nothing in it.
      if (error == std::errc::not_a_directory || error == std::errc::no_such_file_or_directory) {
        error.clear();
      }
      if (error) return ErrnoError(error.value(), "cannot list ", folder->path().string());
    }
    // Somebody took all away.
    if (error && error != std::errc::no_such_file_or_directory) {
      return ErrnoError(error.value(), "cannot list ", objects);
    }
    return OkStatus();
  }

 private:
  std::string PathOf(const std::string& entry) const {
    return StrCat(path_, "/objects/", std::string_view(entry).substr(0, 2), "/", entry);
  }

  const std::string path_;
  const FileDescriptor control_;
  const bool in_memory_;
};

Status CheckFileSystem(const std::string& path, bool in_memory) {
  struct statfs info{};
  if (::statfs(path.c_str(), &info) != 0) {
    return ErrnoError(errno, "cannot ask the file system of ", path);
  }
  const long type = static_cast<long>(info.f_type);
  if (in_memory && type != kTmpfs && type != kRamfs) {
    return InvalidArgumentError("the memory tier ", path,
                                " is not on a tmpfs; give a directory such as /dev/shm/cache");
  }
  if (type == kNfs || type == kSmb2 || type == kLustre) {
    return InvalidArgumentError("the cache ", path,
                                " is on a network file system; give a directory on a local disk");
  }
  return OkStatus();
}

Status CheckOwner(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return ErrnoError(errno, "cannot ask the owner of ", path);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return PermissionDeniedError(
        path, " is not a directory that this user alone writes; remove it, or name another");
  }
  return OkStatus();
}

}  // namespace

bool IsEntryName(std::string_view name) {
  constexpr std::string_view kHex = "0123456789abcdef", kDecimal = "0123456789";
  return name.size() > 65 && name.size() < 85 && name[64] == '-' &&
         name.substr(0, 64).find_first_not_of(kHex) == std::string_view::npos &&
         name.substr(65).find_first_not_of(kDecimal) == std::string_view::npos;
}

StatusOr<std::unique_ptr<CacheShelf>> DirectoryShelf(const std::string& path, bool in_memory,
                                                     bool must_be_own) {
  if (must_be_own && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(errno, "cannot make directory ", path);
  }
  if (must_be_own) AIT_RETURN_IF_ERROR(CheckOwner(path));
  AIT_RETURN_IF_ERROR(MakeDirectoryDurably(path));
  AIT_RETURN_IF_ERROR(CheckFileSystem(path, in_memory));
  AIT_RETURN_IF_ERROR(MakeDirectoryDurably(path + "/objects"));
  const std::string control = path + "/control";
  FileDescriptor fd(::open(control.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.is_open()) return ErrnoError(errno, "cannot open ", control);
  return std::make_unique<Directory>(path, std::move(fd), in_memory);
}

}  // namespace internal
}  // namespace ait::inline v0
