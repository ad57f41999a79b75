// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_DIRECT_H_
#define AIT_COMM_DIRECT_H_

// Collectives among ranks that can reach each other's memory: one pass, nothing is copied twice.

#include <span>

#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "comm/reduce.h"

namespace ait::inline v0::internal {

/// Does the part of `rank` in one collective. `operations` are those of all ranks, in their
/// agreement; when every rank has done its part the collective is complete. The parts write to
/// disjoint memory and read nothing that another part writes, so they may run at the same time.
///
/// An all-reduce is cut into one slice a rank: its owner reads the slice of every rank in rank
/// order and writes the result into all. Gathers and scatters copy straight from input to output.
void RunPart(std::span<const Operation* const> operations, Rank rank);

/// Copies the elements of `from` to `to`, which has as many; nothing if they are the same memory.
void CopyElements(const ConstBuffer& from, const Buffer& to, Stores stores = Stores::kCached);

/// How to write a result of `bytes` that was not there before: past the caches if it does not fit.
inline Stores StoresOf(Bytes bytes) {
  return bytes >= MiB(1) ? Stores::kStreaming : Stores::kCached;
}

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_DIRECT_H_
