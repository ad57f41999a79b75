// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "memory/arena_placer_internal.h"
#include "memory/mapping_internal.h"
#include "memory/numa_nodes_internal.h"
#include "memory/numa_ops_internal.h"
#include "memory/region_allocator_internal.h"

namespace ait::inline v0 {
namespace {

using internal::ArenaMapping;
using internal::FileDescriptor;
using internal::kHugePage;
using internal::kPage;

// Blocks from this size on give their memory back to the system when they are freed.
constexpr std::size_t kGiveBack = std::size_t{8} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The file is the arena's bytes, then one page that says what it is.
struct Label {
  std::array<char, 8> magic = {'a', 'i', 't', 'a', 'r', 'e', 'n', 'a'};
  std::uint64_t version = 1;
  std::uint64_t bytes = 0;  // of the arena
};

std::size_t PageUp(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

int CreateMemoryFile(const std::string& name) {
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = memfd_create(name.c_str(), flags | kNoExecSeal);
  return fd >= 0 || errno != EINVAL ? fd : memfd_create(name.c_str(), flags);
}

/// Refuses what would end in SIGXFSZ.
Status CheckFileSize(std::size_t bytes) {
  rlimit file_size = {};
  if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur != RLIM_INFINITY &&
      file_size.rlim_cur < bytes) {
    return ResourceExhaustedError("cannot create a shared arena of ", bytes,
                                  " bytes: the file-size limit, which counts for it, is ",
                                  file_size.rlim_cur, "; raise it with ulimit -f");
  }
  return OkStatus();
}

Status CheckRoom(std::size_t bytes, const SystemRoots& roots) {
  return Annotate(internal::CheckRoom(roots, bytes),
                  StrCat("cannot reserve ", bytes, " bytes of a shared arena"));
}

/// fallocate with `mode`, and again when a signal came between.
bool AllocateFile(int fd, int mode, std::size_t offset, std::size_t bytes) {
  int result = 0;
  while ((result = fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes))) !=
             0 &&
         errno == EINTR) {
  }
  return result == 0;
}

/// Gives the file its size and its label; its bytes are not reserved yet.
Status Shape(int fd, std::size_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes + kPage)) != 0) {
    return ErrnoError(errno, "reserving ", bytes, " bytes for a shared arena");
  }
  const Label label{.bytes = bytes};
  if (pwrite(fd, &label, sizeof(label), static_cast<off_t>(bytes)) != sizeof(label)) {
    return ErrnoError(errno, "writing the label of a shared arena");
  }
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) return ErrnoError(errno, "sealing a shared arena");
  return OkStatus();
}

/// Puts whole huge pages behind a block that begins on one, whatever the system's default for shared
/// memory is ("never", mostly): all ranks walk over such blocks, and small pages cost them a third of
/// the time. A kernel that cannot (before Linux 6.1) leaves small pages.
void MakeHuge(std::byte* block, std::size_t bytes) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  (void)madvise(block, bytes / kHugePage * kHugePage, kCollapse);
}

/// The bytes of the arena behind `fd`, once it has proved to be one.
StatusOr<std::size_t> ReadLabel(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat file = {};
  if (seals < 0 || fstat(fd, &file) != 0) {
    return InvalidArgumentError("cannot attach to descriptor ", fd,
                                ": it is not a shared arena but ",
                                errno == EBADF ? "closed" : "another kind of file");
  }
  Label label;
  const off_t bytes = file.st_size - static_cast<off_t>(kPage);
  if (bytes <= 0 || pread(fd, &label, sizeof(label), bytes) != sizeof(label) ||
      label.magic != Label().magic || label.bytes != static_cast<std::uint64_t>(bytes)) {
    return InvalidArgumentError("cannot attach to descriptor ", fd, ": a memory file of ",
                                file.st_size, " bytes, but not a shared arena");
  }
  if (label.version != Label().version) {
    return FailedPreconditionError(
        "cannot attach to descriptor ", fd, ": a shared arena of version ", label.version,
        ", while this library reads ", Label().version, "; use the same library in all processes");
  }
  if ((seals & kSeals) != kSeals) {
    return FailedPreconditionError("cannot attach to descriptor ", fd,
                                   ": the shared arena is not sealed, so its memory could be taken "
                                   "away while it is in use");
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace

namespace internal {

StatusOr<ArenaMapping> ArenaMapping::Map(int fd, std::size_t bytes) {
  void* const address = MapAligned(bytes, kHugePage, fd);
  if (address == nullptr) {
    return ErrnoError(errno, "mapping a shared arena of ", bytes, " bytes (ulimit -v limits this)");
  }
  ArenaMapping mapping;
  mapping.data_ = static_cast<std::byte*>(address);
  mapping.bytes_ = bytes;
  mapping.process_ = getpid();
  // Without it a forked child would keep the memory alive, and write into it, unknown to all.
  if (madvise(address, bytes, MADV_DONTFORK) != 0)
    return ErrnoError(errno, "madvise(MADV_DONTFORK)");
  return mapping;
}

ArenaMapping::ArenaMapping(ArenaMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      process_(other.process_) {}

ArenaMapping& ArenaMapping::operator=(ArenaMapping&& other) noexcept {
  ArenaMapping moved(std::move(other));
  std::swap(data_, moved.data_);
  std::swap(bytes_, moved.bytes_);
  std::swap(process_, moved.process_);
  return *this;
}

ArenaMapping::~ArenaMapping() {
  // In a forked child the addresses are not the arena's, and may be something else's.
  if (data_ != nullptr && process_ == getpid()) Unmap(data_, bytes_);
}

StatusOr<Bytes> ArenaMapping::OffsetOf(const void* block, std::size_t bytes) const {
  if (!Contains(block, bytes)) {
    return OutOfRangeError("a block of ", bytes, " bytes is not inside the shared arena of ",
                           bytes_, " bytes; was it allocated elsewhere?");
  }
  return Bytes(static_cast<const std::byte*>(block) - data_);
}

StatusOr<void*> ArenaMapping::At(Bytes offset, std::size_t bytes) const {
  const auto at = static_cast<std::size_t>(offset.value());
  if (offset < Bytes(0) || at > bytes_ || bytes > bytes_ - at) {
    return OutOfRangeError("bytes ", offset, " to ", offset, " + ", bytes,
                           " are not inside the shared arena of ", bytes_, " bytes");
  }
  return static_cast<void*>(data_ + at);
}

}  // namespace internal

StatusOr<std::shared_ptr<SharedArena>> SharedArenaMaker::Make(const SharedArenaOptions& options,
                                                              internal::NumaOps& ops) {
  constexpr std::size_t kMaxName = 240;
  if (options.capacity < Bytes(1) ||
      static_cast<std::size_t>(options.capacity.value()) > MemoryResource::kMaxBytes) {
    return InvalidArgumentError("cannot create a shared arena of ", options.capacity,
                                " bytes; the capacity is from 1 to ", MemoryResource::kMaxBytes);
  }
  if (options.name.size() > kMaxName || options.name.find('\0') != std::string::npos) {
    return InvalidArgumentError("cannot create a shared arena with a name of ", options.name.size(),
                                " bytes; at most ", kMaxName, ", none of them zero");
  }
  const auto bytes = static_cast<std::size_t>(RoundUp(options.capacity.value(), kPage));
  const bool whole = options.reservation == ArenaReservation::kAtCreation;
  AIT_RETURN_IF_ERROR(CheckFileSize(bytes + kPage));
  AIT_RETURN_IF_ERROR(CheckRoom(whole ? bytes + kPage : kPage, options.roots));
  FileDescriptor file(CreateMemoryFile(options.name));
  if (!file.is_open())
    return ErrnoError(errno,
                      "creating a memory file for a shared arena (ulimit -n limits descriptors)");
  AIT_RETURN_IF_ERROR(Shape(file.get(), bytes));
  AIT_ASSIGN_OR_RETURN(ArenaMapping mapping, ArenaMapping::Map(file.get(), bytes));
  auto placer = std::make_unique<internal::ArenaPlacer>(ops, options.roots);
  if (options.node) AIT_RETURN_IF_ERROR(placer->Prefer(mapping.data(), bytes, *options.node));
  if (whole) {
    const auto make = [&](std::byte* data, std::size_t size) {
      const auto offset = static_cast<std::size_t>(data - mapping.data());
      return AllocateFile(file.get(), 0, offset, size)
                 ? OkStatus()
                 : ErrnoError(errno, "reserving ", bytes, " bytes for a shared arena");
    };
    AIT_RETURN_IF_ERROR(placer->Reserve(mapping.data(), bytes, make));
  }
  return std::shared_ptr<SharedArena>(
      new SharedArena(file.Release(), std::move(mapping), options, std::move(placer)));
}

StatusOr<std::shared_ptr<SharedArena>> SharedArena::Create(const SharedArenaOptions& options) {
  return SharedArenaMaker::Make(options, internal::NumaOps::System());
}

SharedArena::SharedArena(int fd, ArenaMapping mapping, SharedArenaOptions options,
                         std::unique_ptr<internal::ArenaPlacer> placer)
    : fd_(fd),
      mapping_(std::move(mapping)),
      options_(std::move(options)),
      regions_(std::make_unique<internal::RegionAllocator>(mapping_.bytes())),
      placer_(std::move(placer)) {}

SharedArena::~SharedArena() { close(fd_); }

Bytes SharedArena::used() const {
  const std::lock_guard lock(mutex_);
  return Bytes(static_cast<std::int64_t>(mapping_.bytes() - regions_->free_bytes()));
}

StatusOr<void*> SharedArena::DoAllocate(std::size_t bytes, std::size_t alignment) {
  if (forks_ != ForkSafeMutex::forks()) {
    return FailedPreconditionError("cannot allocate ", bytes,
                                   " bytes from a shared arena that this process was forked from, "
                                   "and has no mapping of; attach to its descriptor ",
                                   fd_, " with SharedArenaView, or make another arena");
  }
  const auto rounded = static_cast<std::size_t>(
      RoundUp(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(kMinAlignment)));
  const std::lock_guard lock(mutex_);
  const bool is_large =
      options_.reservation == ArenaReservation::kAtAllocation && rounded >= kGiveBack;
  const std::optional<std::size_t> offset =
      regions_->Allocate(rounded, is_large ? std::max(alignment, kHugePage) : alignment);
  if (offset) {
    const Status reserved = Reserve(*offset, rounded);
    if (reserved.ok()) return static_cast<void*>(mapping_.data() + *offset);
    regions_->Free(*offset, rounded);
    return reserved;
  }
  return ResourceExhaustedError("cannot allocate ", bytes, " bytes, aligned to ", alignment,
                                ", from a shared arena of ", mapping_.bytes(), ": ",
                                regions_->free_bytes(), " are free, the largest gap has ",
                                regions_->largest_gap(), "; create it with more capacity");
}

void SharedArena::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  (void)alignment;
  if (forks_ != ForkSafeMutex::forks()) return;  // the parent's books are what counts
  const StatusOr<Bytes> offset = OffsetOf(block, bytes);
  if (!offset.ok()) return;  // not ours: leave it
  const auto rounded = static_cast<std::size_t>(
      RoundUp(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(kMinAlignment)));
  const std::lock_guard lock(mutex_);
  const auto begin = static_cast<std::size_t>(offset->value());
  if (!regions_->Free(begin, rounded)) return;
  if (options_.reservation != ArenaReservation::kAtAllocation || rounded < kGiveBack) return;
  // Whole pages of this block alone; what lies beside them may be in use.
  const std::size_t first = (begin + kPage - 1) / kPage * kPage;
  const std::size_t last = (begin + rounded) / kPage * kPage;
  // A refusal costs memory, nothing else.
  (void)AllocateFile(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, last - first);
}

Status SharedArena::Reserve(std::size_t offset, std::size_t bytes) {
  if (options_.reservation == ArenaReservation::kAtCreation) return OkStatus();
  if (bytes >= kGiveBack) AIT_RETURN_IF_ERROR(CheckRoom(bytes, options_.roots));
  const auto make = [&](std::byte* data, std::size_t size) {
    if (!AllocateFile(fd_, 0, static_cast<std::size_t>(data - mapping_.data()), size)) {
      return ErrnoError(errno, "reserving ", bytes, " bytes of a shared arena");
    }
    if (bytes >= kGiveBack && options_.huge_pages == HugePages::kAdvise) MakeHuge(data, size);
    return OkStatus();
  };
  return placer_->Reserve(mapping_.data() + offset, bytes, make);
}

Status SharedArena::Place(Bytes offset, std::size_t bytes, int node) {
  AIT_RETURN_IF_ERROR(mapping_.At(offset, bytes).status());
  const std::size_t first = PageUp(static_cast<std::size_t>(offset.value()));
  const std::size_t last = (static_cast<std::size_t>(offset.value()) + bytes) / kPage * kPage;
  if (first >= last) return OkStatus();
  const std::lock_guard lock(mutex_);
  AIT_RETURN_IF_ERROR(placer_->Prefer(mapping_.data() + first, last - first, node));
  // What is reserved; the kernel itself does not tell. Pages of small blocks that were freed are left
  // where they are.
  std::vector<std::pair<std::size_t, std::size_t>> reserved = {{first, last}};
  if (options_.reservation == ArenaReservation::kAtAllocation) {
    reserved = regions_->Taken(first, last);
  }
  for (const auto& [begin, end] : reserved) {
    const std::size_t from = begin / kPage * kPage;
    AIT_RETURN_IF_ERROR(
        placer_->Move(mapping_.data() + from, std::min(PageUp(end), last) - from, node));
  }
  return OkStatus();
}

PlacementReport SharedArena::Verify(const void* block, std::size_t bytes) const {
  if (block == nullptr || bytes == 0 || !Contains(block, bytes)) {
    return {.reason = "it is no block of the shared arena"};
  }
  // The pages that hold the block, whole.
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(block) - data());
  const std::size_t first = offset / kPage * kPage;
  const std::size_t last = PageUp(offset + bytes);
  const std::lock_guard lock(mutex_);
  return placer_->Verify(data() + first, last - first);
}

StatusOr<SharedArenaView> SharedArenaView::Attach(int fd) {
  AIT_ASSIGN_OR_RETURN(const std::size_t bytes, ReadLabel(fd));
  AIT_ASSIGN_OR_RETURN(ArenaMapping mapping, ArenaMapping::Map(fd, bytes));
  return SharedArenaView(std::move(mapping));
}

// Of a shared mapping this drops page tables alone.
void SharedArenaView::Forget() const {
  (void)madvise(mapping_.data(), mapping_.bytes(), MADV_DONTNEED);
}

}  // namespace ait::inline v0
