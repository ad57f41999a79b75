// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <mutex>

#include "ait/topology/budget.h"
#include "data/cache/file_io_internal.h"
#include "data/cache/shelf_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

StatusOr<FileDescriptor> NewMemoryFile(const char* name) {
  FileDescriptor fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd.is_open()) return ErrnoError(errno, "cannot make a file in memory (memfd_create)");
  return fd;
}

// Another open file of the same memory, with locks of its own.
StatusOr<FileDescriptor> Reopen(int fd) {
  const std::string path = StrCat("/proc/self/fd/", fd);
  FileDescriptor again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!again.is_open()) return ErrnoError(errno, "cannot open a file in memory again by ", path);
  return again;
}

constexpr std::size_t kLeastEntries = 16, kMostEntries = 65'536;

class PrivateMemory final : public CacheShelf {
 public:
  explicit PrivateMemory(FileDescriptor control) : control_(std::move(control)) {}

  const std::string& name() const override { return name_; }
  int control_fd() const override { return control_.get(); }
  bool needs_sync() const override { return false; }

  StatusOr<std::int64_t> FreeBytes() const override { return FreeMemoryBytes(); }

  // A quarter of the descriptors: the tier opens as many again, and the program has its own.
  std::size_t max_entries() const override {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLeastEntries;
    return std::clamp<std::size_t>(limit.rlim_cur / 4, kLeastEntries, kMostEntries);
  }

  StatusOr<FileDescriptor> Open(const std::string& entry) const override {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(entry);
    if (found == files_.end()) return NotFoundError("no entry ", entry, " in ", name_);
    return Reopen(found->second.get());
  }

  bool IsOnShelf(const std::string& entry, int fd) const override {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(entry);
    struct stat there{}, here{};
    return found != files_.end() && ::fstat(fd, &here) == 0 &&
           ::fstat(found->second.get(), &there) == 0 && here.st_ino == there.st_ino;
  }

  Status Make(const std::string& entry, PartMapHeader header, std::uint64_t use) override {
    AIT_ASSIGN_OR_RETURN(FileDescriptor fd, NewMemoryFile("ait-cache"));
    AIT_RETURN_IF_ERROR(WriteHeader(fd.get(), header, /*with_data=*/true));
    AIT_RETURN_IF_ERROR(WriteFully(fd.get(), kLastUseOffset, std::as_bytes(std::span(&use, 1))));
    const std::lock_guard lock(mutex_);
    files_[entry] = std::move(fd);
    return OkStatus();
  }

  Status Remove(const std::string& entry) override {
    const std::lock_guard lock(mutex_);
    files_.erase(entry);
    return OkStatus();
  }

  Status List(const std::function<void(const std::string&, std::int64_t)>& visit) const override {
    std::vector<std::pair<std::string, std::int64_t>> found;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, fd] : files_) {
        struct stat info{};
        if (::fstat(fd.get(), &info) != 0)
          return ErrnoError(errno, "cannot ask the size of ", name);
        found.emplace_back(name, static_cast<std::int64_t>(info.st_blocks) * 512);
      }
    }
    for (const auto& [name, bytes] : found) visit(name, bytes);
    return OkStatus();
  }

 private:
  const std::string name_ = "memory of this process";
  const FileDescriptor control_;
  mutable std::mutex mutex_;
  std::map<std::string, FileDescriptor> files_;
};

}  // namespace

std::int64_t FreeMemoryBytes(const SystemRoots& roots) {
  const StatusOr<Budget> budget = ReadBudget(roots);
  if (!budget.ok() || !budget->memory_available) return std::numeric_limits<std::int64_t>::max();
  return budget->memory_available->value.value();
}

StatusOr<std::unique_ptr<CacheShelf>> PrivateShelf() {
  AIT_ASSIGN_OR_RETURN(FileDescriptor control, NewMemoryFile("ait-cache-control"));
  AIT_RETURN_IF_ERROR(Reopen(control.get()).status());
  return std::make_unique<PrivateMemory>(std::move(control));
}

}  // namespace internal
}  // namespace ait::inline v0
