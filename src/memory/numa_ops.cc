// SPDX-License-Identifier: Apache-2.0
#include "memory/numa_ops_internal.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <vector>

#include "ait/topology/binding.h"
#include "memory/mapping_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

/// The kernel's form of a set of nodes. It reads one bit less than it is told of.
struct NodeMask {
  explicit NodeMask(const NodeSet& nodes) {
    if (nodes.empty()) return;
    const auto last = static_cast<std::size_t>(nodes[nodes.size() - 1]);
    words.resize(last / kBitsPerWord + 1);
    for (int node : nodes) {
      const auto bit = static_cast<std::size_t>(node);
      words[bit / kBitsPerWord] |= 1UL << bit % kBitsPerWord;
    }
  }
  const unsigned long* data() const { return words.empty() ? nullptr : words.data(); }
  unsigned long bits() const { return words.empty() ? 0 : words.size() * kBitsPerWord + 1; }

  std::vector<unsigned long> words;
};

int ErrorOf(long result) { return result < 0 ? errno : 0; }

}  // namespace

int NumaOps::Bind(void* address, std::size_t bytes, int mode, const NodeSet& nodes) {
  const NodeMask mask(nodes);
  // The nodes are meant, not their places in a cpuset that may change.
  const int flags = nodes.empty() ? 0 : MPOL_F_STATIC_NODES;
  return ErrorOf(syscall(SYS_mbind, address, bytes, mode | flags, mask.data(), mask.bits(), 0U));
}

int NumaOps::Query(std::span<void* const> pages, std::span<int> status) {
  return ErrorOf(syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, status.data(), 0));
}

int NumaOps::Move(std::span<void* const> pages, int node, std::span<int> status) {
  const std::vector<int> targets(pages.size(), node);
  return ErrorOf(syscall(SYS_move_pages, 0, pages.size(), pages.data(), targets.data(),
                         status.data(), MPOL_MF_MOVE));
}

int NumaOps::ProbeThreadPolicy() {
  int mode = 0;
  if (const int error = ErrorOf(syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL));
      error != 0) {
    return error;
  }
  // A mode that does not exist: the kernel says EINVAL, a filter something else.
  const int error = ErrorOf(syscall(SYS_set_mempolicy, -1, nullptr, 0UL));
  return error == EINVAL ? 0 : error;
}

void* NumaOps::Map(std::size_t bytes, std::size_t alignment, bool reserved_huge_pages) {
  return MapAligned(bytes, alignment, -1, reserved_huge_pages ? MAP_HUGETLB | kHugePageFlag : 0);
}

void NumaOps::Unmap(void* address, std::size_t bytes) { internal::Unmap(address, bytes); }

int NumaOps::Populate(void* address, std::size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
  int error = 0;
  do {
    error = madvise(address, bytes, kPopulateWrite) == 0 ? 0 : errno;
  } while (error == EINTR);
  return error;
}

void NumaOps::Touch(void* address, std::size_t bytes) {
  volatile char* const begin = static_cast<char*>(address);
  for (std::size_t at = 0; at < bytes; at += kPage) begin[at] = 0;
}

Status NumaOps::RunOn(const CpuSet& cpus, const std::function<void()>& function) {
  AIT_ASSIGN_OR_RETURN(const ScopedBinding binding, ScopedBinding::Create(cpus));
  function();
  return OkStatus();
}

int NumaOps::CurrentNode() {
  unsigned cpu = 0;
  unsigned node = 0;
  return getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : -1;
}

NumaOps& NumaOps::System() {
  static NumaOps ops;
  return ops;
}

}  // namespace ait::inline v0::internal
