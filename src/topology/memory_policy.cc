// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/memory_policy.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "topology/memory_policy_internal.h"

namespace ait::inline v0 {
namespace {

// As many nodes as any kernel is built for (CONFIG_NODES_SHIFT is at most 10). The calls take a
// count of bits that is one more than the mask has.
constexpr std::size_t kMaxNodes = 1024;
constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);
using NodeMask = std::array<unsigned long, kMaxNodes / kBitsPerWord>;

Status CallError(int error, int node) {
  if (error == EINVAL) {
    return InvalidArgumentError("cannot prefer the memory of node ", node,
                                ": there is no such node, it has no memory, or the cpuset of this "
                                "process does not allow it; `ait topo` lists the nodes");
  }
  if (error == ENOSYS) {
    return UnimplementedError("cannot prefer the memory of node ", node,
                              ": this kernel has no set_mempolicy");
  }
  return ErrnoError(error, "set_mempolicy for node ", node);
}

}  // namespace

namespace internal {

int SetPreferredNode(int node) noexcept {
  if (node < 0) {
    return syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0 ? 0 : errno;
  }
  if (static_cast<std::size_t>(node) >= kMaxNodes) return EINVAL;
  NodeMask mask = {};
  const auto bit = static_cast<std::size_t>(node);
  mask[bit / kBitsPerWord] = 1ul << (bit % kBitsPerWord);
  return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), kMaxNodes + 1) == 0 ? 0 : errno;
}

}  // namespace internal

Status PreferMemoryOfNode(int node) {
  if (node < 0) return CallError(EINVAL, node);
  if (const int error = internal::SetPreferredNode(node); error != 0) {
    return CallError(error, node);
  }
  const auto set = PreferredMemoryNode();
  if (set.ok() && *set != node) {
    return InternalError("prefers the memory of ",
                         set->has_value() ? StrCat("node ", **set) : "no node",
                         " after set_mempolicy was told node ", node);
  }
  return OkStatus();  // where it cannot be read back, the call's own word counts
}

Status PreferLocalMemory() {
  const int error = internal::SetPreferredNode(-1);
  return error == 0 ? OkStatus() : ErrnoError(error, "set_mempolicy for the default policy");
}

StatusOr<std::optional<int>> PreferredMemoryNode() {
  int mode = 0;
  NodeMask mask = {};
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), kMaxNodes, nullptr, 0) != 0) {
    return ErrnoError(errno, "reading the memory policy of this thread");
  }
  if ((mode & ~MPOL_MODE_FLAGS) != MPOL_PREFERRED) return std::nullopt;
  for (std::size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == 0) continue;
    return std::optional<int>(static_cast<int>(word * kBitsPerWord) + __builtin_ctzl(mask[word]));
  }
  return std::nullopt;
}

}  // namespace ait::inline v0
