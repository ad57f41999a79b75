// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHM_RANKS_H_
#define AIT_COMM_SHM_RANKS_H_

// Ranks of a shared-memory group as threads of one process, with knobs: for tests and benchmarks of
// the protocol. Programs take `MakeThreadGroup`.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/transport.h"
#include "comm/shm_collective.h"

namespace ait::inline v0::internal {

struct ShmThreadOptions {
  SharedMemoryOptions shared_memory;
  /// The first round is the next one: a test begins near the end of the numbers.
  std::uint64_t start = 0;
  /// Whether ranks compare what they mean.
  bool check_signatures = true;
};

StatusOr<std::vector<std::unique_ptr<Transport>>> MakeShmThreadRanks(
    WorldSize size, const ShmThreadOptions& options = {});

/// Of a transport of shared memory.
void SetCheckSignatures(Transport& shared_memory, bool check);
/// Of a transport of shared memory, before its first operation.
void SetPhaseHook(Transport& shared_memory, std::function<void(ShmPhase)> hook);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SHM_RANKS_H_
