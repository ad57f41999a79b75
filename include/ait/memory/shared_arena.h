// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_SHARED_ARENA_H_
#define AIT_MEMORY_SHARED_ARENA_H_

// Memory that several processes of a host see at once.
//
// One process creates the arena and allocates in it; the others attach to its file descriptor and
// reach blocks by offset, since addresses differ from process to process. There is nothing to lock
// between processes, so one that dies leaves nothing behind it: no lock, and no name either, for
// the memory is a file without a name that goes away with its last descriptor and mapping. It does
// not use /dev/shm, which is 64 MiB in most containers.
//
//   // owner:
//   AIT_ASSIGN_OR_RETURN(auto arena, SharedArena::Create({.capacity = MiB(64)}));
//   AIT_ASSIGN_OR_RETURN(void* block, arena->Allocate(bytes));
//   AIT_ASSIGN_OR_RETURN(Bytes offset, arena->OffsetOf(block, bytes));
//   // send arena->fd() by SCM_RIGHTS or let a child inherit it; send the offset
//
//   // peer:
//   AIT_ASSIGN_OR_RETURN(auto view, SharedArenaView::Attach(fd));
//   AIT_ASSIGN_OR_RETURN(void* block, view.At(offset, bytes));
//
// Memory is reserved at creation, or with each block if so asked, so that a lack of it is an error
// there and not a SIGBUS later; the file is sealed, so that no process can shrink it under the
// others. Pages lie on the NUMA node of the options, of `Place`, or of the thread that reserves
// them. A forked child does not
// inherit the mapping: there, allocation is an error, and what is given back is left alone.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ait/base/types.h"
#include "ait/memory/fork_safe_mutex.h"
#include "ait/memory/heap.h"
#include "ait/memory/placement.h"
#include "ait/memory/resource.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

/// When an arena takes its memory from the system.
enum class ArenaReservation {
  kAtCreation,  ///< all of it, once
  /// With each block, so that capacity is address space only. Blocks of 8 MiB and more get huge
  /// pages where the kernel has them (HugePages::kAdvise), which takes about 2 ms a MiB, once, and
  /// give them back.
  kAtAllocation,
};

struct SharedArenaOptions {
  Bytes capacity{0};         ///< at least 1; rounded up to pages
  std::string name = "ait";  ///< shown as "memfd:<name>" in /proc/PID/maps; need not be unique
  ArenaReservation reservation = ArenaReservation::kAtCreation;
  /// NUMA node that its pages are put on, or when it is full on others. Empty: that of the thread
  /// that reserves them. Where binding is forbidden, that thread runs there for the moment.
  std::optional<int> node = {};
  HugePages huge_pages = HugePages::kAdvise;  ///< under kAtAllocation; kNever: small pages only
  SystemRoots roots = {};                     ///< where the memory budget and nodes are read
};

namespace internal {
class ArenaPlacer;
class RegionAllocator;

/// A mapping of a whole arena; unmapped at the end, but not by a forked child.
class ArenaMapping {
 public:
  ArenaMapping() = default;
  static StatusOr<ArenaMapping> Map(int fd, std::size_t bytes);
  ArenaMapping(ArenaMapping&& other) noexcept;
  ArenaMapping& operator=(ArenaMapping&& other) noexcept;
  ~ArenaMapping();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  bool Contains(const void* block, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    const auto at = reinterpret_cast<std::uintptr_t>(block);
    return at >= begin && at - begin <= bytes_ && bytes <= bytes_ - (at - begin);
  }
  StatusOr<Bytes> OffsetOf(const void* block, std::size_t bytes) const;
  StatusOr<void*> At(Bytes offset, std::size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int process_ = 0;  // that mapped it
};
}  // namespace internal

/// The owner's side: a memory resource over shared memory.
class SharedArena final : public MemoryResource {
 public:
  /// **Errors.** InvalidArgument: no capacity, a name above 240 bytes, or a node that does not exist
  /// or has no memory; FailedPrecondition: a node outside the cpuset. ResourceExhausted: more
  /// than the memory that is available to this process, than its file-size limit (ulimit -f) or its
  /// address space; or no descriptor is left. Unimplemented: the kernel has no memfd_create.
  static StatusOr<std::shared_ptr<SharedArena>> Create(const SharedArenaOptions& options);
  ~SharedArena() override;

  MemoryProperties properties() const override {
    return {.name = "shared arena", .sharing = Sharing::kProcesses, .node = options_.node};
  }

  /// The descriptor to pass on. Closed at exec; the arena owns it.
  int fd() const { return fd_; }
  Bytes capacity() const { return Bytes(static_cast<std::int64_t>(mapping_.bytes())); }
  /// Bytes in blocks, each rounded up to kMinAlignment.
  Bytes used() const;

  /// Puts the pages that lie in the `bytes` at `offset` on a NUMA node: a part for each rank.
  /// Those that are reserved are moved there, which is slow; those that a later allocation reserves
  /// will lie there. Before others attach. **Errors.** OutOfRange; those of `node` in Create;
  /// PermissionDenied: moving is forbidden; FailedPrecondition: pages could not be moved.
  Status Place(Bytes offset, std::size_t bytes, int node);
  /// Where the `bytes` at `block`, which are allocated, lie, against the node that Place or the
  /// options gave; unverified if there was none, or if they are no block of the arena.
  PlacementReport Verify(const void* block, std::size_t bytes) const;

  std::byte* data() const { return mapping_.data(); }
  /// Whether all of the `bytes` at `block` lie in the arena.
  bool Contains(const void* block, std::size_t bytes) const {
    return mapping_.Contains(block, bytes);
  }
  /// Where in the arena the `bytes` at `block` lie. **Errors.** OutOfRange: not all inside it.
  StatusOr<Bytes> OffsetOf(const void* block, std::size_t bytes) const {
    return mapping_.OffsetOf(block, bytes);
  }
  /// The address of the `bytes` at `offset`. **Errors.** OutOfRange: not all inside the arena.
  StatusOr<void*> At(Bytes offset, std::size_t bytes) const { return mapping_.At(offset, bytes); }

 private:
  friend struct SharedArenaMaker;
  SharedArena(int fd, internal::ArenaMapping mapping, SharedArenaOptions options,
              std::unique_ptr<internal::ArenaPlacer> placer);
  Status Reserve(std::size_t offset, std::size_t bytes);
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  const int fd_;
  const internal::ArenaMapping mapping_;
  const SharedArenaOptions options_;
  const int forks_ = ForkSafeMutex::forks();  // when it was made: a child of then has no mapping
  mutable ForkSafeMutex mutex_;
  std::unique_ptr<internal::RegionAllocator> regions_;
  const std::unique_ptr<internal::ArenaPlacer> placer_;  // under the mutex
};

/// A peer's side: sees all of the arena, allocates nothing. Lives as long as it wants, also when
/// the owner has died.
/// **Thread-safety.** As of an int; the bytes themselves need the peers' own order.
class SharedArenaView {
 public:
  /// Maps the arena behind `fd`, which stays the caller's and may be closed after.
  /// **Errors.** InvalidArgument: not the descriptor of a shared arena. FailedPrecondition: it is
  /// not sealed, or of another version. ResourceExhausted: no address space.
  static StatusOr<SharedArenaView> Attach(int fd);

  Bytes capacity() const { return Bytes(static_cast<std::int64_t>(mapping_.bytes())); }
  /// As of SharedArena.
  StatusOr<Bytes> OffsetOf(const void* block, std::size_t bytes) const {
    return mapping_.OffsetOf(block, bytes);
  }
  StatusOr<void*> At(Bytes offset, std::size_t bytes) const { return mapping_.At(offset, bytes); }

  /// Takes the pages that this process has touched through the view out of its resident set. They
  /// stay in the arena, with what they hold; the next touch of each maps it again, which costs
  /// about a microsecond a page, small or huge. **Thread-safety.** Others may use the view
  /// meanwhile.
  void Forget() const;

 private:
  explicit SharedArenaView(internal::ArenaMapping mapping) : mapping_(std::move(mapping)) {}
  internal::ArenaMapping mapping_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_SHARED_ARENA_H_
