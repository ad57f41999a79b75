// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_MAPPING_INTERNAL_H_
#define AIT_MEMORY_MAPPING_INTERNAL_H_

// Mappings that start on a huge page.

#include <cstddef>

namespace ait::inline v0::internal {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
/// Says to MAP_HUGETLB that kHugePage is meant, whatever the system's default size is.
constexpr int kHugePageFlag = 21 << 26;

/// Maps `bytes` (a multiple of kPage), readable and writable, at an address that is a multiple of
/// `alignment` (a power of two, at least kPage): private memory if `fd` is -1, else the file,
/// shared. `flags` are further ones of mmap, such as MAP_HUGETLB | kHugePageFlag, which wants `bytes`
/// and `alignment` to be multiples of kHugePage. Returns nullptr and sets errno if it cannot.
void* MapAligned(std::size_t bytes, std::size_t alignment, int fd, int flags = 0);

void Unmap(void* address, std::size_t bytes);

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_MAPPING_INTERNAL_H_
