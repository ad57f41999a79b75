// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_PINNED_H_
#define AIT_MEMORY_PINNED_H_

// Page-locked memory: what a GPU copies from and to by itself, and what is never swapped out.
//
// It locks memory of a resource below, by CUDA if there is a GPU and by mlock if there is none, and
// keeps locked memory for reuse, since locking costs as much as touching it.
//
//   AIT_ASSIGN_OR_RETURN(auto memory, PinnedResource::Create({.node = 1}));    // near GPU 4
//   AIT_ASSIGN_OR_RETURN(HostBuffer staging, HostBuffer::Create(memory, bytes));
//   Print(memory->counters().waste);
//
// Sizes are kept as they are asked for: blocks above 64 KiB take whole pages of 4 KiB, smaller ones
// multiples of 128 bytes of a slab. (Allocators that round up to a power of two take up to twice.)
// A block is reused for requests of at least 8/9 of its size, on its own node only: a block that was
// freed on node 1 never serves node 0. In steady state there is no system call.
//
// The limit of locked memory (ulimit -l) is 8 MiB on most systems. It is checked before; the error
// has its value, the need and the commands that raise it. CUDA does not count against it.
//
// A lock does not pass to a forked child: there, allocation is an error, what is given back is left
// alone, and blocks of the parent are ordinary memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ait/base/types.h"
#include "ait/device/runtime.h"
#include "ait/memory/adaptor.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

/// Who holds the pages in place.
enum class PinMethod {
  kCuda,  // the driver: GPUs read and write them by themselves
  kLock,  // mlock: they are not swapped out
};

/// What happens when pages cannot be locked.
enum class PinFailure {
  kFail,         ///< an error that says why, and what to do
  kUsePageable,  ///< ordinary memory, counted in PinnedCounters
};

struct PinnedOptions {
  /// Where the pages come from. Empty: a NumaResource on `node`, or the heap if there is none.
  MemoryHandle upstream = {};
  /// NUMA node of all blocks. Empty: that of the resource below; if it has none, each block lies on
  /// the node of the thread that asks for it, or the nearest with memory.
  std::optional<int> node = {};
  /// Whose memory it is pinned for. Null: what DeviceRuntime::Open finds.
  std::shared_ptr<DeviceRuntime> gpus = nullptr;
  PinFailure on_failure = PinFailure::kFail;
  Bytes max_cached = GiB(1);  ///< locked memory without a block that is kept; below 1: none
  Bytes slab = MiB(1);        ///< of small blocks; 128 KiB to 1 GiB
  SystemRoots roots = {};     ///< where the limit of locked memory is read
};

struct PinnedCounters {
  Bytes asked{0};          ///< of the blocks that are out
  Bytes waste{0};          ///< what they take above that
  Bytes cached{0};         ///< kept for reuse, and the free part of slabs
  Bytes locked{0};         ///< all that is locked now
  std::int64_t locks = 0;  ///< calls that locked: none more in steady state
  Bytes misplaced{
      0};             ///< locked, but on another node than it should be (some pages are asked); not
                      ///< kept for reuse
  Bytes pageable{0};  ///< held but not locked, under PinFailure::kUsePageable; not kept either
  std::int64_t pageable_count = 0;  ///< pieces of memory that could not be locked so far
  std::string pageable_reason;      ///< of the first of them
};

class PinnedResource final : public MemoryAdaptor {
 public:
  /// **Errors.** InvalidArgument: memory of a device, a node that does not exist or is not that of
  /// the resource below, a slab out of range.
  static StatusOr<std::shared_ptr<PinnedResource>> Create(const PinnedOptions& options = {});
  /// All blocks have been given back.
  ~PinnedResource() override;

  /// Such as "pinned(numa(preferred, node 1))".
  MemoryProperties properties() const override;
  PinMethod method() const;
  PinnedCounters counters() const;

  /// Unlocks what no block lies in and gives it back to the resource below; returns its bytes.
  Bytes Trim();

 private:
  friend struct PinnedResourceMaker;
  class Impl;
  explicit PinnedResource(MemoryHandle upstream, std::unique_ptr<Impl> impl);
  /// **Errors.** Also ResourceExhausted: the limit of locked memory, or CUDA has no room.
  /// FailedPrecondition: in a forked child.
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  const std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_PINNED_H_
