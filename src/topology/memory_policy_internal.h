// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_MEMORY_POLICY_INTERNAL_H_
#define AIT_TOPOLOGY_MEMORY_POLICY_INTERNAL_H_

// The system call behind memory_policy.h, by itself: a forked child that has not yet become a
// program may make it.

namespace ait::inline v0::internal {

/// Prefers `node`, or with -1 nothing. Returns errno, or 0. Async-signal-safe.
int SetPreferredNode(int node) noexcept;

}  // namespace ait::inline v0::internal

#endif  // AIT_TOPOLOGY_MEMORY_POLICY_INTERNAL_H_
