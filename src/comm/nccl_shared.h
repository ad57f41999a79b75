// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_SHARED_H_
#define AIT_COMM_NCCL_SHARED_H_

// What a group over NCCL and all that is made from it have in common.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ait/base/log.h"
#include "ait/comm/operation.h"
#include "ait/device/stream.h"
#include "comm/nccl_comm.h"
#include "comm/nccl_memory.h"
#include "comm/nccl_staging.h"

namespace ait::inline v0::internal {

struct NcclShared {
  NcclComm::Place place;
  std::shared_ptr<NcclArena> arena;
  std::shared_ptr<NcclMemory> memory;
  std::function<void*(Device device)> producer_stream;
  std::chrono::milliseconds abort_timeout{};
  LogSink* log = nullptr;
};

/// Where the buffers of an operation lie, and what has to come before it.
struct NcclPlaced {
  enum class Where { kNowhere, kHost, kDevice };
  Where where = Where::kNowhere;
  std::optional<Event> produced;  // the caller's stream at the call
};

/// Looks at the buffers of `operation` and marks the caller's stream.
/// **Errors.** InvalidArgument: they lie on several devices, on another than the rank's, on host and
/// device, or are too large for the way over the device. Unimplemented: NCCL cannot reduce them.
StatusOr<NcclPlaced> PlaceOperation(const NcclShared& shared, const Operation& operation, int rank,
                                    int size);

/// What all ranks must agree on: also where a reduction is made, on the host or on the device.
std::uint64_t SignatureOf(const Operation& operation, NcclPlaced::Where where);

/// "all-reduce (sum) of 8 float32, sequence 1, on the host".
std::string DescribePlaced(const Operation& operation, NcclPlaced::Where where);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_SHARED_H_
