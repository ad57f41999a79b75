// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_SYSTEM_PAGES_INTERNAL_H_
#define AIT_MEMORY_SYSTEM_PAGES_INTERNAL_H_

// Private pages straight from the system: mapped for each block and unmapped with it. It has no state
// and no lock.

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <system_error>

#include "ait/memory/heap.h"
#include "ait/memory/resource.h"
#include "memory/mapping_internal.h"

namespace ait::inline v0::internal {

class SystemPages final : public MemoryResource {
 public:
  static std::shared_ptr<SystemPages> Create(HugePages huge_pages) {
    return std::make_shared<SystemPages>(huge_pages);
  }
  explicit SystemPages(HugePages huge_pages) : huge_pages_(huge_pages) {}

  MemoryProperties properties() const override { return {.name = "system pages"}; }

 private:
  static std::size_t Rounded(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    const std::size_t size = Rounded(bytes);
    void* const block = MapAligned(size, alignment, -1);
    if (block == nullptr) {
      return ResourceExhaustedError("cannot map ", bytes,
                                    " bytes: ", std::generic_category().message(errno),
                                    "; the address space (ulimit -v), the system's commit limit "
                                    "or its number of mappings (vm.max_map_count) is used up");
    }
    // Advice: where the system has no huge pages, small ones do.
    if (huge_pages_ == HugePages::kAdvise) madvise(block, size, MADV_HUGEPAGE);
    return block;
  }
  void DoDeallocate(void* block, std::size_t bytes, std::size_t) override {
    Unmap(block, Rounded(bytes));
  }

  const HugePages huge_pages_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_SYSTEM_PAGES_INTERNAL_H_
