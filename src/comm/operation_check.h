// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_OPERATION_CHECK_H_
#define AIT_COMM_OPERATION_CHECK_H_

// What one rank alone can say about an operation: whether its buffers, counts, peer and reduction
// fit together. What ranks can only say together is compared by `Operation::Signature`.

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"

namespace ait::inline v0::internal {

/// A send or a receive; the others are collectives.
constexpr bool IsMessage(OperationKind kind) {
  return kind == OperationKind::kSend || kind == OperationKind::kReceive;
}

/// InvalidArgument with rank, operation, value seen and value allowed, or ok.
Status CheckOperation(const Operation& operation, Rank rank, WorldSize size);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_OPERATION_CHECK_H_
