// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_RUNTIME_AGREE_INTERNAL_H_
#define AIT_RUNTIME_AGREE_INTERNAL_H_

// One outcome for all ranks of something that each did for itself.

#include "ait/base/status.h"
#include "ait/comm/communicator.h"

namespace ait::inline v0::internal {

/// **Collective. Blocks.** Ok if `local` is ok on all ranks; else the error of the first rank that
/// has one, with its rank, on every rank. Its text is cut after about 1000 bytes.
Status AgreeOnStatus(Communicator& communicator, const Status& local, OperationOptions options);

}  // namespace ait::inline v0::internal

#endif  // AIT_RUNTIME_AGREE_INTERNAL_H_
