// SPDX-License-Identifier: Apache-2.0
#include "optim/state_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kPage = 4096;  // of memory, offset and size of a direct read or write

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
StatusOr<FileDescriptor> OpenNameless(const std::string& directory) {
  FileDescriptor fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.is_open()) return fd;
  // File systems without it, and kernels before 3.11, say one of these.
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
    std::string path = directory + "/ait-state-XXXXXX";
    FileDescriptor named(::mkostemp(path.data(), O_CLOEXEC));
    if (named.is_open()) {
      if (::unlink(path.c_str()) == 0) return named;
      return ErrnoError(errno, "cannot remove the name of ", path);
    }
  }
  return ErrnoError(errno, "cannot make a file for optimizer state in ", directory,
                    "; StateOffload::directory must be a directory that this process may write to");
}

std::string FreeBytes(int fd) {
  struct statvfs info{};
  if (::fstatvfs(fd, &info) != 0) return "unknown";
  return StrCat(static_cast<std::int64_t>(info.f_bavail * info.f_frsize));
}

Status Reserve(int fd, std::int64_t bytes, std::string_view where) {
  // Beyond this limit the kernel would kill the process.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    return ResourceExhaustedError("no room for optimizer state in ", where, ": ", bytes,
                                  " bytes are needed, and the limit of a file (ulimit -f) is ",
                                  static_cast<std::int64_t>(limit.rlim_cur));
  }
  int error = 0;
  do {
    error = ::posix_fallocate(fd, 0, bytes);
  } while (error == EINTR);
  if (error == 0) return OkStatus();
  const Status failed = ErrnoError(error, "no room for optimizer state in ", where, ": ", bytes,
                                   " bytes are needed, free are ", FreeBytes(fd));
  return failed;
}

std::string WhyNoUring(const Status& status) {
  std::string why = Message(status);
  if (status.code() == StatusCode::kPermissionDenied) {
    why += " (a seccomp filter, or the sysctl kernel.io_uring_disabled)";
  }
  return why;
}

}  // namespace

StatusOr<std::unique_ptr<StateFile>> StateFile::Create(const StateFileOptions& options) {
  AIT_RETURN_IF_ERROR(options.offload.Validate());
  std::unique_ptr<StateFile> file(new StateFile);
  AIT_RETURN_IF_ERROR(file->Open(options));
  return file;
}

StateFile::~StateFile() {
  io_.reset();  // waits; then nobody writes to the memory
  if (memory_ != nullptr) ::munmap(memory_, static_cast<std::size_t>(memory_bytes()));
}

std::int64_t StateFile::memory_bytes() const {
  return static_cast<std::int64_t>(slots_.size()) * chunk_bytes_;
}

Status StateFile::Open(const StateFileOptions& options) {
  chunk_bytes_ = RoundUp(options.offload.chunk.value(), kPage);
  count_ = options.count;
  directory_ = options.offload.directory;
  if (count_ < 1 || count_ > (std::int64_t{1} << 62) / chunk_bytes_) {
    return InvalidArgumentError("optimizer state in ", directory_, " has ", count_, " chunks of ",
                                chunk_bytes_, " bytes");
  }
  AIT_ASSIGN_OR_RETURN(fd_, OpenNameless(directory_));
  file_system_ = StrCat(directory_, " (", FileSystemName(fd_.get()), ")");
  AIT_RETURN_IF_ERROR(Reserve(fd_.get(), file_bytes(), file_system_));
  AIT_RETURN_IF_ERROR(
      MakeSlots(static_cast<int>(std::min<std::int64_t>(options.offload.chunks, count_))));
  return OpenIo(options);
}

Status StateFile::MakeSlots(int count) {
  const auto bytes = static_cast<std::size_t>(count * chunk_bytes_);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(errno, "no memory for ", count, " chunks of ", chunk_bytes_, " bytes");
  }
  memory_ = static_cast<std::byte*>(memory);
  // A child made by fork while the device writes to the pages must not share them.
  ::madvise(memory, bytes, MADV_DONTFORK);
  slots_.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].data = memory_ + static_cast<std::int64_t>(i) * chunk_bytes_;
  }
  return OkStatus();
}

Status StateFile::OpenIo(const StateFileOptions& options) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  std::string caching = "O_DIRECT";
  std::string reasons;
  const auto buffer = [&](std::string_view why) {
    caching = "buffered";
    reasons += StrCat(reasons.empty() ? ", because " : ", and because ", why);
    return ::fcntl(fd_.get(), F_SETFL, flags) == 0;
  };
  if (options.buffered) {
    buffer("it was asked for");
  } else if (::fcntl(fd_.get(), F_SETFL, flags | O_DIRECT) != 0) {
    buffer(StrCat("the file system has no O_DIRECT (", Message(ErrnoError(errno, "fcntl")), ")"));
  }
  std::vector<std::unique_ptr<FileIo>> candidates;
  if (options.io) {
    candidates.push_back(options.io(fd_.get()));
  } else {
    // A slot has at most one request.
    auto ring = OpenUring(fd_.get(), std::max(2, static_cast<int>(slots_.size())));
    if (ring.ok()) {
      candidates.push_back(*std::move(ring));
    } else {
      reasons +=
          StrCat(reasons.empty() ? ", because " : ", and because ", WhyNoUring(ring.status()));
    }
    candidates.push_back(OpenFileThread(fd_.get()));
  }
  Status probed;
  for (std::unique_ptr<FileIo>& io : candidates) {
    probed = Probe(*io);
    if (probed.code() == StatusCode::kInvalidArgument && caching == "O_DIRECT") {
      buffer(StrCat("the file system refuses O_DIRECT (", Message(probed), ")"));
      probed = Probe(*io);
    }
    if (probed.ok()) {
      io_ = std::move(io);
      description_ = StrCat(file_system_, ": ", io_->name(), ", ", caching, reasons);
      return OkStatus();
    }
    reasons += StrCat(reasons.empty() ? ", because " : ", and because ", io->name(),
                      " failed: ", Message(probed));
  }
  return Annotate(probed, StrCat("optimizer state in ", file_system_));
}

// Writes and reads the first page, which is zeros before and after.
Status StateFile::Probe(FileIo& io) {
  for (const auto kind : {FileRequest::Kind::kWrite, FileRequest::Kind::kRead}) {
    FileRequest request{.kind = kind, .data = memory_, .bytes = kPage};
    AIT_RETURN_IF_ERROR(io.Start(request));
    while (!request.done) AIT_RETURN_IF_ERROR(io.WaitForAny());
    if (request.error > 0) {
      return ErrnoError(request.error, kind == FileRequest::Kind::kRead ? "reading" : "writing");
    }
    if (request.error != 0) return DataLossError("the file ends before its first page does");
  }
  return OkStatus();
}

StateFile::Slot* StateFile::Find(std::int64_t chunk) {
  const auto found =
      std::ranges::find_if(slots_, [&](const Slot& slot) { return slot.chunk == chunk; });
  return found == slots_.end() ? nullptr : &*found;
}

// The slot to read into: an empty one, else the clean one that was used longest ago. Chunks
// [first_kept, first_kept + kept) stay, round and round.
StateFile::Slot* StateFile::FindFree(std::int64_t first_kept, std::int64_t kept) {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    if (slot.condition == Condition::kEmpty) return &slot;
    if (slot.condition != Condition::kClean) continue;
    if ((slot.chunk - first_kept + count_) % count_ < kept) continue;
    if (best == nullptr || slot.last_use < best->last_use) best = &slot;
  }
  return best;
}

Status StateFile::Start(Slot& slot, FileRequest::Kind kind) {
  slot.request = {
      .kind = kind, .data = slot.data, .bytes = chunk_bytes_, .offset = slot.chunk * chunk_bytes_};
  slot.condition = kind == FileRequest::Kind::kRead ? Condition::kReading : Condition::kWriting;
  status_ = Annotate(io_->Start(slot.request), file_system_);
  return status_;
}

// Takes in what has ended; with `wait`, until something has.
Status StateFile::Collect(bool wait) {
  status_ = Annotate(wait ? io_->WaitForAny() : io_->Poll(), file_system_);
  for (Slot& slot : slots_) {
    const bool reading = slot.condition == Condition::kReading;
    if ((!reading && slot.condition != Condition::kWriting) || !slot.request.done) continue;
    slot.condition = Condition::kClean;
    const FileRequest& request = slot.request;
    if (request.error == 0 || !status_.ok()) continue;
    const std::string what =
        StrCat(reading ? "cannot read " : "cannot write ", request.bytes, " bytes at offset ",
               request.offset, " of the optimizer state in ", file_system_);
    status_ = request.error == FileRequest::kFileEnds
                  ? DataLossError(what, ": the file ends ", request.moved,
                                  " bytes after that; somebody has truncated it")
                  : ErrnoError(request.error, what);
  }
  return status_;
}

// Begins to write what was changed, except for the slot that is about to be used.
Status StateFile::WriteOthers(const Slot* used) {
  for (Slot& slot : slots_) {
    if (&slot == used || slot.condition != Condition::kDirty) continue;
    AIT_RETURN_IF_ERROR(Start(slot, FileRequest::Kind::kWrite));
  }
  return OkStatus();
}

// Begins to read the chunks behind `index` as far as there are slots: one is used, and one is left
// for what is being written.
Status StateFile::ReadAhead(std::int64_t index) {
  const auto slots = static_cast<std::int64_t>(slots_.size());
  const std::int64_t window = count_ <= slots ? slots : slots - 1;
  for (std::int64_t i = 1; i < window; ++i) {
    const std::int64_t next = (index + i) % count_;
    if (Find(next) != nullptr) continue;
    Slot* const slot = FindFree(index, window);
    if (slot == nullptr) break;
    slot->chunk = next;
    slot->last_use = uses_;
    AIT_RETURN_IF_ERROR(Start(*slot, FileRequest::Kind::kRead));
  }
  return OkStatus();
}

// Waits until a chunk is in memory and at rest.
Status StateFile::Fetch(std::int64_t index, Slot*& slot) {
  slot = Find(index);
  AIT_RETURN_IF_ERROR(WriteOthers(slot));
  AIT_RETURN_IF_ERROR(Collect(/*wait=*/false));
  while (slot == nullptr) {
    slot = FindFree(index, 1);
    if (slot == nullptr) {
      AIT_RETURN_IF_ERROR(Collect(/*wait=*/true));
      continue;
    }
    slot->chunk = index;
    AIT_RETURN_IF_ERROR(Start(*slot, FileRequest::Kind::kRead));
  }
  slot->last_use = ++uses_;
  AIT_RETURN_IF_ERROR(ReadAhead(index));
  while (slot->condition != Condition::kClean && slot->condition != Condition::kDirty) {
    AIT_RETURN_IF_ERROR(Collect(/*wait=*/true));
    AIT_RETURN_IF_ERROR(ReadAhead(index));
  }
  return OkStatus();
}

Status StateFile::Use(std::int64_t index, StateAccess access,
                      const std::function<Status(std::byte*)>& body) {
  AIT_RETURN_IF_ERROR(status_);
  if (index < 0 || index >= count_) {
    return OutOfRangeError("chunk ", index, " of optimizer state that has ", count_);
  }
  Slot* slot = nullptr;
  AIT_RETURN_IF_ERROR(Fetch(index, slot));
  if (access == StateAccess::kReadWrite) slot->condition = Condition::kDirty;
  return body(slot->data);
}

Status StateFile::Flush() {
  AIT_RETURN_IF_ERROR(status_);
  AIT_RETURN_IF_ERROR(WriteOthers(nullptr));
  const auto writing = [](const Slot& slot) { return slot.condition == Condition::kWriting; };
  while (std::ranges::any_of(slots_, writing)) AIT_RETURN_IF_ERROR(Collect(/*wait=*/true));
  return OkStatus();
}

}  // namespace ait::inline v0::internal
