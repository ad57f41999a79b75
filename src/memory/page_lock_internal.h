// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_PAGE_LOCK_INTERNAL_H_
#define AIT_MEMORY_PAGE_LOCK_INTERNAL_H_

// Locking pages in memory, and what limits it.

#include <cstddef>
#include <memory>

#include "ait/base/status.h"
#include "ait/memory/pinned.h"

namespace ait::inline v0 {
namespace internal {

/// The system calls behind pinned memory, as one table that tests replace.
class PageLock {
 public:
  virtual ~PageLock() = default;

  /// mlock: 0 or an errno.
  virtual int Lock(void* address, std::size_t bytes);
  virtual void Unlock(void* address, std::size_t bytes);

  /// The NUMA node of the page at `address`; -1 if unknown.
  virtual int NodeOf(void* address);
  /// The node that the calling thread runs on; -1 if unknown. Not a system call.
  virtual int CurrentNode();

  /// The calls themselves. Never destroyed.
  static PageLock& System();
};

/// Whether this process may lock `bytes` more bytes. **Errors.** ResourceExhausted with the limit,
/// what is locked, the need, and the commands that raise the limit.
Status CheckLockLimit(std::size_t bytes, const SystemRoots& roots);

}  // namespace internal

struct PinnedResourceMaker {
  /// As PinnedResource::Create. `lock` outlives the resource.
  static StatusOr<std::shared_ptr<PinnedResource>> Make(const PinnedOptions& options,
                                                        internal::PageLock& lock);
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_PAGE_LOCK_INTERNAL_H_
