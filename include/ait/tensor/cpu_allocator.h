// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_CPU_ALLOCATOR_H_
#define AIT_TENSOR_CPU_ALLOCATOR_H_

// The memory of libtorch's CPU tensors, from a resource of yours: while a scope lives, everything
// that libtorch allocates for the CPU in this process, activations and oneDNN's scratch memory
// included, comes from its resource.
//
//   AIT_ASSIGN_OR_RETURN(auto pool, PoolResource::Create());
//   AIT_ASSIGN_OR_RETURN(auto scope, CpuAllocatorScope::Create(pool));
//   Train();                        // faster than with malloc, and in less memory; "memory/pool.h"
//
// Reach for it when a process trains: over a pool a step allocates without page faults, over a NUMA
// resource tensors lie where the work is, over a limit libtorch's out-of-memory error is yours. A
// single tensor that shall lie somewhere is `Empty` ("empty.h").
//
// **One a process**, since libtorch has one allocator for the CPU; nothing else in ait asks for it.
// Tensors made before the scope keep malloc's memory. Tensors made inside may outlive it: they keep
// the resource alive and give their memory back to it.
//
// What cannot be allocated arrives as c10::OutOfMemoryError with the text of the resource's Status,
// and so as ResourceExhausted from `Trainer::Step`. libtorch's profiler sees these allocations as it
// sees malloc's.
//
// **Thread-safety.** Tensors may be made and dropped on any thread while a scope begins or ends.
// libtorch's registration itself is not thread-safe, so begin and end a scope while no other
// thread registers an allocator.

#include <cstdint>
#include <memory>
#include <utility>

#include "ait/base/status.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

class [[nodiscard]] CpuAllocatorScope {
 public:
  /// **Errors.** InvalidArgument: no memory, or memory of a device. FailedPrecondition: another scope
  /// lives, or another library has put its own allocator in place of libtorch's, or has claimed
  /// the place with a higher priority.
  static StatusOr<CpuAllocatorScope> Create(MemoryHandle memory);

  CpuAllocatorScope(CpuAllocatorScope&& other) noexcept
      : installed_(std::exchange(other.installed_, nullptr)) {}
  CpuAllocatorScope& operator=(CpuAllocatorScope&& other) noexcept {
    std::swap(installed_, other.installed_);
    return *this;
  }
  /// From here on libtorch allocates as before the first scope. ait's allocator stays in its place
  /// and passes on.
  ~CpuAllocatorScope();

  /// Blocks of this scope that live.
  std::int64_t live_count() const;

 private:
  struct Installed;
  friend class HostAllocator;

  explicit CpuAllocatorScope(Installed* installed) : installed_(installed) {}

  Installed* installed_ = nullptr;
};

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_CPU_ALLOCATOR_H_
