// SPDX-License-Identifier: Apache-2.0
#include "memory/mapping_internal.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

namespace ait::inline v0::internal {

void* MapAligned(std::size_t bytes, std::size_t alignment, int fd, int flags) {
  flags |= fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  if (alignment <= kPage) {
    void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    return address == MAP_FAILED ? nullptr : address;
  }
  // Reserve enough addresses, map over the aligned part of them, and give the rest back.
  const std::size_t reserved = bytes + alignment - kPage;
  void* const area =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(area);
  const std::size_t skip =
      (alignment - reinterpret_cast<std::uintptr_t>(begin) % alignment) % alignment;
  char* const aligned = begin + skip;
  if (mmap(aligned, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(area, reserved);
    errno = error;
    return nullptr;
  }
  if (skip != 0) munmap(begin, skip);
  if (const std::size_t rest = reserved - skip - bytes; rest != 0) munmap(aligned + bytes, rest);
  return aligned;
}

void Unmap(void* address, std::size_t bytes) { munmap(address, bytes); }

}  // namespace ait::inline v0::internal
