// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_JOIN_H_
#define AIT_COMM_NCCL_JOIN_H_

// `JoinNccl` with the control plane in parts, as a test can make it.

#include <memory>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/nccl.h"
#include "comm/nccl_board.h"

namespace ait::inline v0::internal {

/// **Collective. Blocks.** `board` without its members, which are all ranks.
StatusOr<std::unique_ptr<Transport>> JoinNcclWith(NcclBoard::Options board, WorldSize size,
                                                  Deadline deadline, const NcclOptions& options);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_JOIN_H_
