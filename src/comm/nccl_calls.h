// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_CALLS_H_
#define AIT_COMM_NCCL_CALLS_H_

// Operations in terms of NCCL's functions. What NCCL has no function for (parts of different sizes,
// all-to-all, gather, scatter) is a group of calls.

#include <nccl.h>

#include <span>

#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "comm/nccl_comm.h"

namespace ait::inline v0::internal {

/// Whether NCCL can reduce such elements. **Errors.** Unimplemented: 16-bit integers.
Status CheckReduction(const Operation& operation);

/// Gives a collective of rank `rank` to `stream`; `input` and `output` are device memory. Whatever
/// only moves is moved as bytes. Nothing is called if nothing moves. `KeepGoing` as of NcclComm.
Status EnqueueCollective(const NcclComm& comm, void* stream, const Operation& operation,
                         const void* input, void* output, int rank, int size,
                         const KeepGoing& keep_going);

/// Part r of `input` to rank r, and part r of `output` from rank r, sizes in bytes.
Status EnqueueExchange(const NcclComm& comm, void* stream, const void* input,
                       std::span<const std::int64_t> sent_bytes, void* output,
                       std::span<const std::int64_t> received_bytes, const KeepGoing& keep_going);

/// `bytes` of every rank to all.
Status EnqueueAllGather(const NcclComm& comm, void* stream, const void* input, void* output,
                        std::int64_t bytes, const KeepGoing& keep_going);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_CALLS_H_
